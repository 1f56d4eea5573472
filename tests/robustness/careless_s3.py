"""A tiny S3 server that accepts If-None-Match and ignores it, as some do. Prints its port into the file given."""
import hashlib
import http.server
import os
import re
import sys
import urllib.parse

objects = {}


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def key(self):
        return urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_PUT(self):
        content = self.body()
        objects[self.key()] = content
        self.answer(200, ETag=f'"{hashlib.md5(content).hexdigest()}"')

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if "list-type" in query:
            bucket = self.key().rstrip("/")
            prefix = query.get("prefix", [""])[0]
            found = "".join(
                f"<Contents><Key>{name[len(bucket) + 1:]}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                f'<ETag>"{hashlib.md5(content).hexdigest()}"</ETag><Size>{len(content)}</Size></Contents>'
                for name, content in sorted(objects.items())
                if name.startswith(f"{bucket}/{prefix}")
            )
            listing = f"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
            return self.answer(200, listing.encode(), Content_Type="application/xml")
        content = objects.get(self.key())
        if content is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        headers = {"ETag": f'"{hashlib.md5(content).hexdigest()}"', "Last_Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
            headers["Content_Range"] = f"bytes {start}-{end}/{len(content)}"
            return self.answer(206, content[start : end + 1], **headers)
        return self.answer(200, content, **headers)

    do_HEAD = do_GET

    def do_DELETE(self):
        objects.pop(self.key(), None)
        self.answer(204)

    def do_POST(self):
        deleted = re.findall(r"<Key>(.*?)</Key>", self.body().decode())
        for name in deleted:
            objects.pop(f"{self.key().rstrip('/')}/{name}", None)
        self.answer(200, b"<DeleteResult></DeleteResult>", Content_Type="application/xml")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
