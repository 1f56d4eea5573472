use bytes::Bytes;
use forebay_fuse::{
    Agreed, DirBuffer, DirPlusBuffer, Errno, Filesystem, InitConfig, KernelOffer, LockReply, ReadBuffer,
    Request,
    flags::{Capabilities, OpenFlags, WriteFlags},
    types::{
        Attr, CopyRange, Create, Entry, Fallocate as FuseFallocate, Lock, LockKind, LockRange, Mknod,
        Open as FuseOpen, Opened as FuseOpened, Read, Release, SetAttr, SetXattr as FuseSetXattr, StatFs,
        Statx, StatxReply, Write,
    },
};
use forebay_types::{FileKind, limits::NAME_MAX};
use forebay_vfs::{Asked, LockKeeper, ReadPiece, RenameMode, SetXattr, Through, VfsError, Whence, Wish};

use crate::{
    callers::{has_no_atime, open_args},
    convert::{self, ino, mode_bits},
    volume_fs::VolumeFs,
};

type Result<T> = std::result::Result<T, Errno>;

impl Filesystem for VolumeFs {
    fn init(&self, offer: &KernelOffer) -> Result<InitConfig> {
        if let Some(recalls) = &self.recalls {
            recalls.kernel_is(offer.minor);
        }
        let plain = InitConfig::default();
        let locks = Capabilities::POSIX_LOCKS | Capabilities::FLOCK_LOCKS;
        // A default ACL replaces the umask, which the kernel then must not apply.
        let acls = Capabilities::POSIX_ACL | Capabilities::DONT_MASK;
        let capabilities = plain
            .capabilities
            .with(locks, self.vfs.lock_keeper() == LockKeeper::Vfs)
            .with(acls, self.vfs.has_acls())
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::SETXATTR_EXT
            | Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::DO_READDIRPLUS
            | Capabilities::CACHE_SYMLINKS
            | self.page_capabilities();
        match self.wishes_passthrough() {
            Capabilities::NONE => Ok(InitConfig { capabilities, ..plain }),
            wish => Ok(InitConfig { capabilities: capabilities | wish, max_stack_depth: 1, ..plain }),
        }
    }

    fn started(&self, agreed: &Agreed) {
        tracing::debug!(minor = agreed.minor, capabilities = ?agreed.capabilities, "mounted");
        self.begun(agreed);
    }

    fn destroy(&self) {
        self.notices.end();
        if let Some(recalls) = &self.recalls {
            recalls.end();
        }
        if let Some(through) = &self.passthrough {
            through.ended();
        }
        if let Some(sealed) = &self.sealed {
            sealed.ended();
        }
        self.vfs.write_access_times();
    }

    fn paused(&self) {
        self.notices.end();
        if let Some(through) = &self.passthrough {
            through.paused();
        }
        self.vfs.write_access_times();
    }

    fn called(&self, req: &Request) {
        forebay_vfs::serving::serve(req.pid);
    }

    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        if name != b"." {
            self.permits(req, "lookup in", parent, Wish::Search(ino(parent)))?;
        }
        let since = self.moment();
        match self.vfs.lookup(ino(parent), name) {
            Ok(attr) if name == b"." => Ok(self.same_entry((since, parent), &attr)),
            Ok(attr) => Ok(self.entry((since, parent), &attr)),
            Err(VfsError::NotFound) => Ok(Entry::negative(self.entry_lifetime(since, parent, None))),
            Err(error) => self.looked_up("lookup in", parent, Err(error)),
        }
    }

    fn forget(&self, number: u64, nlookup: u64) {
        self.forgotten(number, nlookup);
    }

    fn getattr(&self, _req: &Request, number: u64, _fh: Option<u64>) -> Result<Attr> {
        let since = self.moment();
        let attr = self.done("stat", number, self.vfs.getattr(ino(number)))?;
        Ok(self.attr(since, &attr))
    }

    fn setattr(&self, req: &Request, number: u64, set: &SetAttr) -> Result<Attr> {
        if self.is_elsewhere(number, set.size.is_some()) {
            return Err(Errno::ESTALE);
        }
        let since = self.moment();
        let kill = self.kill(req, number, set.kill_suidgid);
        let by_handle = set.fh.is_some();
        let set = forebay_vfs::SetAttr { kill, ..convert::set_attr(set) };
        self.permits(req, "change of attributes", number, Wish::SetAttr(ino(number), &set, by_handle))?;
        let attr = self.vfs.setattr(ino(number), &set);
        Ok(self.attr(since, &self.done("change of attributes", number, attr)?))
    }

    fn readlink(&self, _req: &Request, number: u64) -> Result<Bytes> {
        self.done("readlink", number, self.vfs.readlink(ino(number))).map(Bytes::from)
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let at = (self.moment(), parent);
        let made = self.by(req, |caller| self.vfs.symlink(ino(parent), name, target, caller));
        self.done("symlink in", parent, made).map(|attr| self.entry(at, &attr))
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], args: &Mknod) -> Result<Entry> {
        let kind = match args.mode & libc::S_IFMT {
            0 => FileKind::Regular,
            _ => FileKind::from_mode(args.mode).ok_or(Errno::EINVAL)?,
        };
        let at = (self.moment(), parent);
        let what = (kind, mode_bits(args.mode), mode_bits(args.umask));
        let made = self.by(req, |caller| self.vfs.mknod(ino(parent), name, what, args.rdev, caller));
        self.done("mknod in", parent, made).map(|attr| self.entry(at, &attr))
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        let at = (self.moment(), parent);
        let (mode, umask) = (mode_bits(mode), mode_bits(umask));
        let made = self.by(req, |caller| self.vfs.mkdir(ino(parent), name, mode, umask, caller));
        self.done("mkdir in", parent, made).map(|attr| self.entry(at, &attr))
    }

    fn unlink(&self, req: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.permits(req, "unlink in", parent, Wish::TakeName(ino(parent), name))?;
        self.done("unlink in", parent, self.vfs.unlink(ino(parent), name))
    }

    fn rmdir(&self, req: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.permits(req, "rmdir in", parent, Wish::TakeName(ino(parent), name))?;
        self.done("rmdir in", parent, self.vfs.rmdir(ino(parent), name))
    }

    fn rename(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        let (from, to) = ((ino(parent), name), (ino(new_parent), new_name));
        self.permits(req, "rename in", parent, Wish::Rename(from, to, mode))?;
        let renamed = self.vfs.rename(from, to, mode);
        self.done("rename in", parent, renamed)
    }

    fn link(&self, req: &Request, number: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        self.permits(req, "link", number, Wish::MakeName(ino(new_parent)))?;
        let at = (self.moment(), new_parent);
        let linked = self.vfs.link(ino(number), ino(new_parent), new_name);
        self.done("link", number, linked).map(|attr| self.entry(at, &attr))
    }

    fn open(&self, req: &Request, number: u64, args: &FuseOpen) -> Result<FuseOpened> {
        self.open_file(req, number, args)
    }

    fn create(&self, req: &Request, parent: u64, name: &[u8], args: &Create) -> Result<(Entry, FuseOpened)> {
        let at = (self.moment(), parent);
        let mode = (mode_bits(args.mode), mode_bits(args.umask));
        let exclusive = args.flags & libc::O_EXCL as u32 != 0;
        let open = (open_args(args.flags, args.kill_suidgid.into()), exclusive);
        let made = self.by(req, |caller| self.vfs.create(ino(parent), name, mode, open, caller));
        self.done("create in", parent, made)
            .map(|(attr, handle)| (self.own_entry(at, &attr), self.opened(attr.ino.0, args.flags, &handle)))
    }

    fn tmpfile(&self, req: &Request, parent: u64, args: &Create) -> Result<(Entry, FuseOpened)> {
        let at = (self.moment(), parent);
        let mode = (mode_bits(args.mode), mode_bits(args.umask));
        let linkable = args.flags & libc::O_EXCL as u32 == 0;
        let made = self.by(req, |caller| self.vfs.tmpfile(ino(parent), mode, linkable, caller));
        self.done("tmpfile in", parent, made)
            .map(|(attr, handle)| (self.own_entry(at, &attr), self.opened(attr.ino.0, args.flags, &handle)))
    }

    fn read(&self, _req: &Request, number: u64, args: &Read, out: &mut ReadBuffer) -> Result<()> {
        let since = self.moment();
        let no_atime = has_no_atime(args.flags);
        let through = Through { fh: args.fh, lock_owner: args.lock_owner };
        let pieces = self.vfs.read(ino(number), args.offset, args.size, no_atime);
        for piece in self.done("read", number, self.still_held(number, through, pieces))? {
            match piece {
                ReadPiece::Bytes(bytes) => out.push(bytes),
                ReadPiece::Zeros(count) => out.push_zeros(count),
            }
        }
        self.was_read(since, number);
        Ok(())
    }

    fn write(&self, req: &Request, number: u64, args: &Write, data: &[u8]) -> Result<u32> {
        let kill = self.kill(req, number, args.write_flags.contains(WriteFlags::KILL_SUIDGID));
        // Whose pages the kernel writes back, it does not say.
        let asks = !args.write_flags.contains(WriteFlags::CACHE);
        let through = asks.then_some(Through { fh: args.fh, lock_owner: args.lock_owner });
        let written = self.vfs.write_at(ino(number), Self::write_at(args), data, Asked { kill, through });
        let written = self.done("write", number, written)?;
        self.wrote(number, args, &written);
        u32::try_from(written.len).map_err(|_| Errno::EIO)
    }

    fn flush(&self, _req: &Request, number: u64, _fh: u64, lock_owner: u64) -> Result<()> {
        self.done("close", number, self.vfs.flush(ino(number), lock_owner))
    }

    fn release(&self, _req: &Request, number: u64, args: &Release) -> Result<()> {
        self.closed(number, args);
        Ok(())
    }

    fn fsync(&self, _req: &Request, number: u64, _fh: u64, _datasync: bool) -> Result<()> {
        self.done("fsync", number, self.vfs.fsync(ino(number)))
    }

    fn opendir(&self, req: &Request, number: u64, _args: &FuseOpen) -> Result<FuseOpened> {
        self.permits(req, "opendir", number, Wish::Access(ino(number), 4))?;
        let fh = self.done("opendir", number, self.vfs.opendir(ino(number)))?;
        // Not CACHE_DIR: a listing that the kernel began with the entries of an earlier handle it continues, once it has dropped them, with that handle's
        // cookies, which say nothing to this one.
        Ok(FuseOpened { fh, flags: OpenFlags::default(), passthrough: None })
    }

    fn readdir(
        &self,
        _req: &Request,
        number: u64,
        fh: u64,
        offset: u64,
        out: &mut DirBuffer<'_>,
    ) -> Result<()> {
        let listed = self.vfs.readdir(fh, offset, &mut |listed| {
            out.add(listed.ino.0, listed.cookie, convert::kind(listed.kind), listed.name)
        });
        self.done("readdir", number, listed)
    }

    fn readdirplus(
        &self,
        _req: &Request,
        number: u64,
        fh: u64,
        offset: u64,
        out: &mut DirPlusBuffer<'_>,
    ) -> Result<()> {
        let at = (self.moment(), number);
        let listed = self.vfs.readdirplus(fh, offset, &mut |listed| match &listed.attr {
            Some(attr) => self.list_entry(at, attr, |entry| out.add(entry, listed.cookie, listed.name)),
            None => out.add_name(listed.ino.0, listed.cookie, convert::kind(listed.kind), listed.name),
        });
        self.done("readdir", number, listed)
    }

    fn releasedir(&self, _req: &Request, _ino: u64, args: &Release) -> Result<()> {
        self.vfs.releasedir(args.fh);
        Ok(())
    }

    fn fsyncdir(&self, _req: &Request, number: u64, _fh: u64, _datasync: bool) -> Result<()> {
        self.done("fsync", number, self.vfs.fsyncdir(ino(number)))
    }

    fn statfs(&self, _req: &Request, number: u64) -> Result<StatFs> {
        let space = self.done("statfs", number, self.vfs.space())?;
        Ok(StatFs {
            blocks: space.blocks,
            bfree: space.free,
            bavail: space.available,
            files: space.files,
            ffree: space.files_free,
            bsize: space.block_size,
            frsize: space.block_size,
            namelen: NAME_MAX as u32,
        })
    }

    fn setxattr(
        &self,
        req: &Request,
        number: u64,
        name: &[u8],
        value: &[u8],
        args: &FuseSetXattr,
    ) -> Result<()> {
        self.permits(req, "setxattr", number, Wish::SetXattr(ino(number), name))?;
        const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        let mode = match args.flags as i32 {
            0 => SetXattr::Any,
            libc::XATTR_CREATE => SetXattr::Create,
            libc::XATTR_REPLACE => SetXattr::Replace,
            // Both at once cannot succeed; what is wrong depends on whether it is there.
            BOTH => {
                self.done("setxattr", number, self.vfs.getxattr(ino(number), name))?;
                return Err(Errno::EEXIST);
            }
            _ => return Err(Errno::EINVAL),
        };
        let set = self.vfs.setxattr(ino(number), name, value, mode, args.acl_kill_sgid);
        self.done("setxattr", number, set)
    }

    fn getxattr(&self, req: &Request, number: u64, name: &[u8]) -> Result<Bytes> {
        self.permits(req, "getxattr", number, Wish::Xattr(ino(number), name))?;
        self.done("getxattr", number, self.vfs.getxattr(ino(number), name)).map(Bytes::from)
    }

    fn listxattr(&self, req: &Request, number: u64) -> Result<Bytes> {
        let list = self.vfs.listxattr(ino(number), self.is_root(req));
        self.done("listxattr", number, list).map(Bytes::from)
    }

    fn removexattr(&self, req: &Request, number: u64, name: &[u8]) -> Result<()> {
        self.permits(req, "removexattr", number, Wish::SetXattr(ino(number), name))?;
        self.done("removexattr", number, self.vfs.removexattr(ino(number), name))
    }

    fn getlk(&self, _req: &Request, number: u64, lock: &Lock) -> Result<LockRange> {
        let Some(request) = convert::lock_request(lock) else { return Ok(lock.range) };
        let conflict = self.done("getlk", number, self.vfs.locks().conflict(ino(number), &request))?;
        Ok(conflict.map_or(LockRange { kind: LockKind::Unlock, ..lock.range }, convert::lock_range))
    }

    fn setlk(&self, _req: &Request, number: u64, lock: &Lock, reply: LockReply) {
        self.lock(number, lock, false, reply);
    }

    fn setlkw(&self, _req: &Request, number: u64, lock: &Lock, reply: LockReply) {
        self.lock(number, lock, true, reply);
    }

    fn interrupt(&self, unique: u64) {
        self.vfs.locks().interrupt(unique);
    }

    fn fallocate(&self, req: &Request, number: u64, args: &FuseFallocate) -> Result<()> {
        let what = convert::fallocate(args.mode).ok_or(Errno::ENOTSUP)?;
        let range = (args.offset, args.length);
        let kill = self.kill(req, number, self.kills(req));
        let asked = Asked { kill, through: Some(Through { fh: args.fh, lock_owner: None }) };
        self.done("fallocate", number, self.vfs.fallocate(ino(number), what, range, asked))
    }

    fn lseek(&self, _req: &Request, number: u64, fh: u64, offset: i64, whence: u32) -> Result<u64> {
        let whence = match whence as i32 {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let found = self.vfs.seek(ino(number), offset, whence);
        self.done("lseek", number, self.still_held(number, Through { fh, lock_owner: None }, found))
    }

    fn copy_file_range(&self, req: &Request, args: &CopyRange) -> Result<u64> {
        if args.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let from = (ino(args.ino_in), args.offset_in);
        let to = (ino(args.ino_out), args.offset_out);
        let kill = self.kill(req, args.ino_out, self.kills(req));
        let through = |fh| Through { fh, lock_owner: None };
        let of = self.vfs.refuse_lost(from.0, through(args.fh_in));
        self.done("copy of", args.ino_in, of)?;
        let asked = Asked { kill, through: Some(through(args.fh_out)) };
        let copied = self.vfs.copy_range(from, to, args.len, asked);
        let copied = self.still_held(args.ino_in, through(args.fh_in), copied);
        self.done("copy to", args.ino_out, copied)
    }

    fn syncfs(&self, _req: &Request, number: u64) -> Result<()> {
        self.done("sync", number, self.vfs.sync_all())
    }

    fn statx(&self, _req: &Request, number: u64, _args: &Statx) -> Result<StatxReply> {
        let since = self.moment();
        let attr = self.done("stat", number, self.vfs.getattr(ino(number)))?;
        Ok(self.statx_of(since, &attr))
    }
}
