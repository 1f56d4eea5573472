//! The credentials file of the AWS tools: sections of `key = value` lines.

/// The three values of a credential: key id, secret, session token.
pub(super) type Keys = (String, String, Option<String>);

/// The credential of a profile, if the file has both its key id and its secret.
pub(super) fn find(text: &str, profile: &str) -> Option<Keys> {
    let (mut id, mut secret, mut token) = (None, None, None);
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let section = section.trim();
            inside = section.strip_prefix("profile ").map_or(section, str::trim) == profile;
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| inside && !line.starts_with(['#', ';']))
        else {
            continue;
        };
        let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    Some((id?, secret?, token))
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn finds_the_profile_and_nothing_else() {
        let text = "# comment\n[default]\naws_access_key_id = A\naws_secret_access_key=B=\n\n[ other ]\n\
                    aws_access_key_id=C\naws_session_token = T\n; aws_secret_access_key = no\naws_secret_access_key = D\n\
                    [half]\naws_access_key_id = E\n";
        assert_eq!(find(text, "default"), Some(("A".into(), "B=".into(), None)));
        assert_eq!(find(text, "other"), Some(("C".into(), "D".into(), Some("T".into()))));
        assert_eq!(find(text, "half"), None);
        assert_eq!(find(text, "missing"), None);
        assert_eq!(find("", "default"), None);
    }
}
