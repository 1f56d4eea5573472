#!/usr/bin/env bash
# SQLite in rollback and WAL mode: many writers, a writer killed in the middle, integrity after each.
. "$TESTS/prelude.sh"
/usr/bin/python3 "$TESTS/applications/sqlite_kill.py" "$DIR"
for mode in delete wal; do
  database=$DIR/shell-$mode.db
  sqlite3 "$database" "pragma journal_mode=$mode; create table t(id integer primary key, body blob);" >/dev/null
  for writer in 1 2 3; do
    for round in 1 2 3 4 5 6 7 8; do
      sqlite3 -cmd '.timeout 60000' "$database" "insert into t(body) select randomblob(500) from (with recursive n(i) as (select 1 union all select i + 1 from n where i < 50) select i from n);"
    done &
  done
  wait
  [ "$(sqlite3 "$database" 'select count(*) from t')" = 1200 ] || fail "$mode: rows are missing"
  sqlite3 "$database" 'delete from t where id % 3 = 0; vacuum;'
  [ "$(sqlite3 "$database" 'pragma integrity_check')" = ok ] || fail "$mode: integrity"
  cp "$database" "$SCRATCH/copy.db"
  [ "$(sqlite3 "$SCRATCH/copy.db" 'select count(*) from t')" = 800 ] || fail "$mode: a copy differs"
done
