/* Some work for SQLite: inserts, an index, joins, groups, text functions. */
#include <stdio.h>
#include <stdlib.h>

#include "sqlite3-binding.h"

static void run(sqlite3 *db, const char *sql) {
	char *err = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &err) != SQLITE_OK) {
		fprintf(stderr, "%s: %s\n", sql, err);
		exit(1);
	}
}

int main(int argc, char **argv) {
	sqlite3 *db;
	if (argc != 2 || sqlite3_open(":memory:", &db) != SQLITE_OK)
		return 1;
	for (int i = 0; i < atoi(argv[1]); i++) {
		run(db, "create table t(a integer primary key, b int, c text)");
		run(db, "with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000) "
			"insert into t select i, i * 7919 % 1009, 'text ' || (i * 31 % 97) from n");
		run(db, "create index t_b on t(b, c)");
		run(db, "create table u as select c, count(*) as n, sum(b) as s, max(length(c)) as m from t group by c");
		run(db, "create table v as select t.a, u.n, upper(substr(t.c, 3)) as x from t join u on t.c = u.c where t.b between 100 and 700 "
			"order by x, t.a desc");
		run(db, "update t set c = replace(c, 'x', 'yy') where b % 3 = 0");
		run(db, "delete from t where c like '%9%'");
		run(db, "create table w as select json_extract(json_object('k', a, 'l', c), '$.l') as j, avg(b) over (order by a rows 5 preceding) as r from t");
		run(db, "drop table t; drop table u; drop table v; drop table w");
	}
	return sqlite3_close(db) != SQLITE_OK;
}
