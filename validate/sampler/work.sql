-- Work for the sampler.
CREATE TABLE a(id INTEGER PRIMARY KEY, x INTEGER, s TEXT);
CREATE TABLE b(id INTEGER PRIMARY KEY, y INTEGER, t TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 120000)
INSERT INTO a SELECT i, i*7919%10007, printf('%x-%d', i*31, i) FROM n;
INSERT INTO b SELECT id, x*3%5003, s||'t' FROM a;
CREATE INDEX ax ON a(x);
CREATE INDEX byt ON b(y, t);
SELECT count(*), sum(length(s)) FROM a JOIN b ON a.x = b.y WHERE b.t LIKE '%1%7%';
SELECT x, group_concat(substr(s, 1, 3), ',') FROM a GROUP BY x HAVING count(*) > 11 ORDER BY 2 DESC LIMIT 100;
SELECT y, avg(length(t)) OVER (PARTITION BY y ORDER BY t) FROM b ORDER BY t DESC LIMIT 10;
UPDATE a SET s = upper(s)||x WHERE id % 3 = 0;
DELETE FROM b WHERE y IN (SELECT x FROM a WHERE s GLOB '*A*[0-9]');
SELECT json_group_array(json_object('x', x, 's', s)) FROM (SELECT * FROM a LIMIT 20000);
VACUUM;
