use super::*;

fn volume() -> VolumeRow {
    VolumeRow {
        id: VolumeId([7; 16]),
        state: VolumeState::Ready,
        store: "s3://bucket/prefix".to_owned(),
        endpoint: String::new(),
        region: "eu".to_owned(),
        block_size: 4 << 20,
        compression: Compression::Zstd,
        limit: Some(1 << 40),
        created: 1_700_000_000,
        generation: 3,
        place: VolumePlace::default(),
        left: None,
        group: String::new(),
        further: Vec::new(),
        class: WriteClass::Object,
    }
}

fn grouped() -> VolumeRow {
    VolumeRow { group: "g".to_owned(), ..volume() }
}

fn written_over() -> VolumeRow {
    VolumeRow { class: WriteClass::Replica(Some(3)), ..grouped() }
}

fn of_several() -> VolumeRow {
    VolumeRow { further: vec!["h".to_owned(), "i".to_owned()], ..grouped() }
}

fn moved() -> VolumeRow {
    let address = PlaceAddress("postgres://me:secret@host/meta".to_owned());
    let place = VolumePlace { address, brought_by: "0a1b".to_owned() };
    VolumeRow { place, left: Some(VolumePlace::default()), ..volume() }
}

fn token() -> TokenRow {
    TokenRow {
        digest: [9; 32],
        volume: VolumeId([7; 16]),
        root: "/a/b".to_owned(),
        read_only: true,
        no_exec: false,
        root_squash: true,
        created: 5,
        expires: 0,
    }
}

#[test]
fn rows_are_read_as_they_were_written() {
    assert_eq!(VolumeRow::decode(&volume().encode()), Ok(volume()));
    assert_eq!(VolumeRow::decode(&moved().encode()), Ok(moved()));
    let back = VolumeRow { left: Some(moved().place), ..volume() };
    assert_eq!(VolumeRow::decode(&back.encode()), Ok(back));
    assert_eq!(VolumeRow::decode(&grouped().encode()), Ok(grouped()));
    let both = VolumeRow { group: "g".to_owned(), ..moved() };
    assert_eq!(VolumeRow::decode(&both.encode()), Ok(both));
    let plain = VolumeRow { class: WriteClass::Replica(None), group: "g".to_owned(), ..moved() };
    assert_eq!(VolumeRow::decode(&plain.encode()), Ok(plain));
    assert_eq!(VolumeRow::decode(&written_over().encode()), Ok(written_over()));
    // One copy: a number that releases refuse which do not know the class.
    let local = VolumeRow { class: WriteClass::Local, ..grouped() };
    assert_eq!((local.encode()[0], local.encode().last()), (4, Some(&1)));
    assert_eq!(VolumeRow::decode(&local.encode()), Ok(local));
    let mut many = written_over().encode();
    *many.last_mut().unwrap() = 9;
    VolumeRow::decode(&many).unwrap_err();
    assert_eq!(written_over().encode()[0], 4);
    assert_eq!((volume().encode()[0], moved().encode()[0], grouped().encode()[0]), (1, 2, 3));
    for class in
        [WriteClass::Object, WriteClass::Local, WriteClass::Replica(None), WriteClass::Replica(Some(3))]
    {
        for place in [volume(), moved()] {
            let VolumeRow { group, further, .. } = of_several();
            let row = VolumeRow { group, further, class, ..place };
            assert_eq!(row.encode()[0], 5);
            assert_eq!(VolumeRow::decode(&row.encode()), Ok(row));
        }
    }
    assert_eq!(of_several().groups().collect::<Vec<_>>(), ["g", "h", "i"]);
    assert!(of_several().has_group("i") && !of_several().has_group("") && !volume().has_group(""));
    // What has one group stays as it was: releases that know no others read it.
    assert_eq!(grouped().encode()[1..], [&volume().encode()[1..], &[0, 0, 0, 1, b'g']].concat());
    assert_eq!(written_over().encode()[1..], [&grouped().encode()[1..], &[3]].concat());
    assert!(!format!("{:?}", moved()).contains("secret"));
    assert_eq!(TokenRow::decode(&token().encode()), Ok(token()));
    let member = MemberRow { address: "a:1".to_owned(), beat: 300, release: "0.1.0".to_owned() };
    assert_eq!(MemberRow::decode(&member.encode()), Ok(member));
    let mark = Mark { number: 3, nonce: u64::MAX };
    assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
}

#[test]
fn rows_that_are_cut_or_of_a_later_release_are_refused() {
    for row in [volume(), moved(), grouped(), written_over(), of_several()] {
        let bytes = row.encode();
        for len in 0..bytes.len() {
            VolumeRow::decode(&bytes[..len]).unwrap_err();
        }
    }
    let later = [&[6], &volume().encode()[1..]].concat();
    let error = VolumeRow::decode(&later).unwrap_err();
    assert!(error.to_string().contains("use a newer one"), "{error}");
    // Behind the first group: the class, how many, their names.
    let head = [&[5], &grouped().encode()[1..]].concat();
    let several = |behind: &[u8]| VolumeRow::decode(&[&head, behind].concat());
    assert_eq!(several(&[255, 2, 1, b'h', 1, b'i']), Ok(of_several()));
    let eight: Vec<u8> = (0..8).flat_map(|number| [1, b'a' + number]).collect();
    for behind in [
        &[255, 0][..],
        &[255, 1, 0],
        &[255, 1, 1, b'g'],
        &[255, 2, 1, b'h', 1, b'h'],
        &[9, 1, 1, b'h'],
        &[&[255, 8], &eight[..]].concat(),
    ] {
        assert!(several(behind).is_err(), "{behind:?}");
    }
    let object = [&[4], &grouped().encode()[1..], &[255]].concat();
    assert!(VolumeRow::decode(&object).is_err(), "in a row of version 4 that is no class");
    let bytes = token().encode();
    for len in 0..bytes.len() {
        TokenRow::decode(&bytes[..len]).unwrap_err();
    }
}

#[test]
fn keys_say_whose_rows_they_are() {
    assert_eq!(name_of(&volume_key("a.b")).as_deref(), Some("a.b"));
    assert_eq!(token_of(&token_key(TokenId(77))), Some(TokenId(77)));
    assert_eq!(member_of(&member_key(ServerId([3; 16]))), Some(ServerId([3; 16])));
    assert_eq!(name_of(&token_key(TokenId(1))), None);
}

#[test]
fn tokens_expire_at_their_second() {
    assert!(!token().has_expired(u64::MAX));
    let short = TokenRow { expires: 100, ..token() };
    assert!(!short.has_expired(99) && short.has_expired(100));
}
