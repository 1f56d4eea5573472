#!/usr/bin/env bash
# The C sources of zstd, built with make on the volume, rebuilt without work to do, and run.
. "$TESTS/prelude.sh"
cp -r "$(crate_sources zstd-sys)/zstd/lib" "$DIR/zstd"
cd "$DIR/zstd"
cat >Makefile <<'MAKE'
SOURCES := $(wildcard common/*.c compress/*.c decompress/*.c)
OBJECTS := $(SOURCES:.c=.o)
CFLAGS := -O0 -MMD -DZSTD_DISABLE_ASM=1 -DXXH_NAMESPACE=ZSTD_
roundtrip: roundtrip.o libzstd.a
	$(CC) -o $@ $^
libzstd.a: $(OBJECTS)
	rm -f $@
	ar rcs $@ $^
-include $(OBJECTS:.o=.d)
MAKE
cat >roundtrip.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "zstd.h"
int main(void) {
  size_t size = 3 << 20, bound = ZSTD_compressBound(size);
  char *in = malloc(size), *mid = malloc(bound), *out = malloc(size);
  for (size_t i = 0; i < size; i++) in[i] = (char)((i * i >> 7) ^ (i / 1000));
  size_t packed = ZSTD_compress(mid, bound, in, size, 3);
  if (ZSTD_isError(packed) || ZSTD_decompress(out, size, mid, packed) != size || memcmp(in, out, size)) return 1;
  printf("%zu -> %zu\n", size, packed);
  return 0;
}
C
make -s -j2 roundtrip
./roundtrip
make -q roundtrip || fail "make has work to do again: times are wrong"
touch common/error_private.h
! make -q roundtrip || fail "make does not see a touched header"
make -s -j2 roundtrip
cp roundtrip "$SCRATCH/" && "$SCRATCH/roundtrip" >/dev/null
