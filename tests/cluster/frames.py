"""Bytes that no part of a release would send, at the door of a metadata server: frames.py SOCKET; and a server that is another release: frames.py --serve SOCKET.

Each case says what the server answered. It must end the connection or refuse the request, and nothing else.
"""

import os
import socket
import struct
import sys

MAGIC = b"\x89FBRPC\r\n"
REQUEST, REPLY, ERROR, GOAWAY = 1, 2, 3, 7
UNSUPPORTED, MALFORMED, VERSION = 0x1001, 0x1002, 0x1005
TABLE = []
for index in range(256):
    for _ in range(8):
        index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
    TABLE.append(index)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def preface(oldest=1, newest=1, refused=0, text=b"", features=0):
    release = b"9.9.9"
    rest = struct.pack("<HHHQIIIIBB", oldest, newest, refused, features, 1 << 20, 8 << 20, 1024, 64 << 20, len(release), len(text))
    rest += release + text
    whole = MAGIC + struct.pack("<H", len(rest) + 4) + rest
    return whole + struct.pack("<I", crc32c(whole))


def frame(kind, body=b"", number=1, type_=REQUEST, length=None, flags=1):
    head = struct.pack("<BBHIQIIII", type_, flags, kind, 10_000, number, len(body) if length is None else length, 0, 1 << 16, crc32c(body))
    return head + struct.pack("<I", crc32c(head)) + body


class Peer:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)

    def say(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def exactly(self, length):
        data = b""
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            data += more
        return data

    def greet(self, **how):
        self.say(preface(**how))
        head = self.exactly(10)
        if head is None:
            return None
        rest = self.exactly(struct.unpack("<H", head[8:])[0])
        return struct.unpack("<HHH", rest[:6]), rest

    def frame(self):
        """The next frame but pings: its type and code; None where the connection ends."""
        while True:
            head = self.exactly(36)
            if head is None:
                return None
            type_, _, code, _, _, body, bulk = struct.unpack("<BBHIQII", head[:24])
            self.exactly(body + bulk)
            if type_ != 5:
                return type_, code

    def is_closed(self):
        """Whether the server ends the connection, whatever it says before."""
        while self.exactly(1):
            pass
        return True

    def ends(self):
        """Whether the server ends the connection, perhaps with a last word."""
        found = self.frame()
        return found is None or found[0] == GOAWAY and self.frame() is None


def greeted(path):
    peer = Peer(path)
    (oldest, newest, refused), _ = peer.greet()
    assert (oldest, newest, refused) == (1, 1, 0), (oldest, newest, refused)
    return peer


def check(path):
    for title, data in (
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n"),
        ("a preface that is too long", MAGIC + b"\xff\xff" + bytes(100)),
        ("a preface with a wrong checksum", preface()[:-1] + b"\0"),
        ("noise", os.urandom(4096)),
    ):
        peer = Peer(path)
        peer.say(data)
        assert peer.is_closed(), title
    (_, _, refused), rest = Peer(path).greet(oldest=7, newest=9)
    assert refused == VERSION and b"7" in rest and b"1" in rest, rest
    for title, data in (
        ("a frame with a wrong checksum", frame(18)[:-1] + b"\0"),
        ("a frame larger than was agreed", frame(18, length=1 << 30)),
        ("a type that nobody knows", frame(18, type_=77)),
        ("an answer to nothing", frame(0, type_=REPLY, number=1 << 40)),
        ("a request twice", frame(18, number=5) + frame(18, number=5)),
        ("requests out of order", frame(18, number=5) + frame(18, number=4)),
    ):
        peer = greeted(path)
        peer.say(data)
        found = peer.frame()
        assert found is None or found[0] in (REPLY, GOAWAY), (title, found)
        assert found is None or found[0] == GOAWAY or peer.ends(), title
    for title, data, code in (
        ("a kind that nobody knows", frame(999), UNSUPPORTED),
        ("a greeting that is none", frame(1, b"\xff" * 40), MALFORMED),
        ("a list that promises too much", frame(16, b"\x01" + b"\xff" * 9 + b"\x01"), MALFORMED),
    ):
        peer = greeted(path)
        peer.say(data)
        assert peer.frame() == (ERROR, code), title
        peer.say(frame(18, number=2))
        assert peer.frame() == (REPLY, 0), f"after {title}"
    # One that says half of a frame, and no more, is in nobody's way.
    half = greeted(path)
    half.say(frame(18)[:20])
    other = greeted(path)
    other.say(frame(18))
    assert other.frame() == (REPLY, 0), "beside a frame that does not end"


def serve(path):
    """A server that speaks versions 7 to 9 alone."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        peer, _ = listener.accept()
        peer.recv(4096)
        peer.sendall(preface(7, 9, VERSION, b"this release speaks versions 7 to 9, the other one 1"))
        peer.close()


if sys.argv[1] == "--serve":
    serve(sys.argv[2])
else:
    check(sys.argv[1])
