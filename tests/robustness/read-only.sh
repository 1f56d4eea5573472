#!/usr/bin/env bash
# A volume mounted with -o ro refuses every change with EROFS, and changes nothing.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
write_tree "$SCRATCH/mount" 10
manifest "$SCRATCH/mount" >"$SCRATCH/before"
umount_volume "$SCRATCH/mount"
"$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/mount" -o ro,allow_other </dev/null >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log"; fail "mount -o ro"; }
/usr/bin/python3 - "$SCRATCH/mount" <<'PYTHON'
import errno, os, sys
os.chdir(sys.argv[1])
file = "dir-0/sub-0/file-0"
attempts = {
    "create": lambda: os.open("new", os.O_CREAT | os.O_WRONLY), "write": lambda: os.open(file, os.O_RDWR),
    "truncate": lambda: os.truncate(file, 1), "unlink": lambda: os.unlink(file), "mkdir": lambda: os.mkdir("new"),
    "rmdir": lambda: os.rmdir("dir-0/sub-0"), "rename": lambda: os.rename(file, "new"), "link": lambda: os.link(file, "new"),
    "symlink": lambda: os.symlink("x", "new"), "mkfifo": lambda: os.mkfifo("new"), "chmod": lambda: os.chmod(file, 0o600),
    "chown": lambda: os.chown(file, 1, 1), "utimens": lambda: os.utime(file), "setxattr": lambda: os.setxattr(file, "user.a", b"b"),
}
for name, attempt in attempts.items():
    try:
        attempt()
        sys.exit(f"FAILED: {name} worked")
    except OSError as error:
        assert error.errno == errno.EROFS, (name, error)
PYTHON
manifest "$SCRATCH/mount" | cmp - "$SCRATCH/before"
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
