#!/usr/bin/env bash
# A Python environment with a package of its own: copied interpreter, compiled modules, imports.
. "$TESTS/prelude.sh"
/usr/bin/python3 -m venv --without-pip --copies "$DIR/env"
site=$("$DIR/env/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
case $site in "$(realpath "$DIR")"* | "$DIR"*) ;; *) fail "site-packages is outside: $site" ;; esac
mkdir "$site/many"
touch "$site/many/__init__.py"
for number in $(seq 30); do
  printf 'from . import module_%d\nvalue = module_%d.value + 1\n' $((number - 1)) $((number - 1)) >"$site/many/module_$number.py"
done
echo 'value = 0' >"$site/many/module_0.py"
"$DIR/env/bin/python" -m compileall -q "$site"
[ "$(ls "$site/many/__pycache__" | wc -l)" -eq 32 ] || fail "compiled modules are missing"
[ "$("$DIR/env/bin/python" -c 'import many.module_30 as m; print(m.value)')" = 30 ] || fail "the import chain gives a wrong value"
cp -r /usr/lib/python3/dist-packages "$site/debian" 2>/dev/null || cp -r /usr/lib/python3.11/json "$site/debian"
"$DIR/env/bin/python" -m compileall -q -j 2 "$site/debian" || true
"$DIR/env/bin/python" -c 'import json, email, http.client, sqlite3, unittest; print("ok")' >/dev/null
