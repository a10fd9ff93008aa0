;; Runs a script of SQL in a database in memory. The result is a checksum of the first column of all rows.
(module
 (import "env" "memory" (memory 0))
 (import "sqlite" "__wasm_call_ctors" (func $construct))
 (import "sqlite" "malloc" (func $malloc (param i32) (result i32)))
 (import "sqlite" "sqlite3_open" (func $open (param i32 i32) (result i32)))
 (import "sqlite" "sqlite3_prepare_v2" (func $prepare (param i32 i32 i32 i32 i32) (result i32)))
 (import "sqlite" "sqlite3_step" (func $step (param i32) (result i32)))
 (import "sqlite" "sqlite3_finalize" (func $finalize (param i32) (result i32)))
 (import "sqlite" "sqlite3_column_text" (func $text (param i32 i32) (result i32)))
 (import "sqlite" "sqlite3_column_bytes" (func $bytes (param i32 i32) (result i32)))
 (import "sqlite" "sqlite3_errmsg" (func $message (param i32) (result i32)))
 (data $script
  "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL, d INTEGER);\n"
  "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<6000)\n"
  " INSERT INTO t SELECT i, printf('%05d-%s', (i*7919)%6000, hex(i*31)), i*1.25, (i*48271)%97 FROM n;\n"
  "CREATE INDEX tb ON t(b);\n"
  "CREATE INDEX td ON t(d, c);\n"
  "SELECT count(*)||' '||sum(d)||' '||round(avg(c),3) FROM t WHERE b LIKE '0%' OR d BETWEEN 10 AND 20;\n"
  "SELECT group_concat(x,',') FROM (SELECT d||':'||count(*)||':'||max(b) AS x FROM t GROUP BY d HAVING count(*)>61 ORDER BY 1 LIMIT 5);\n"
  "UPDATE t SET c=c+a*0.5, b=substr(b,3)||upper('x') WHERE d<30;\n"
  "DELETE FROM t WHERE a%7=3;\n"
  "SELECT count(*)||' '||sum(x.d*y.d) FROM t x JOIN t y ON x.d=y.d AND y.a<200 WHERE x.c>100;\n"
  "SELECT sum(length(j)) FROM (SELECT json_object('a',a,'b',b,'c',json_array(c,d)) AS j FROM t);\n"
  "SELECT sum(json_extract(j,'$.c[1]')) FROM (SELECT json_object('a',a,'c',json_array(c,d)) AS j FROM t);\n"
  "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY d ORDER BY c DESC) AS r FROM t);\n"
  "WITH RECURSIVE f(i,x,y) AS (SELECT 0,0,1 UNION ALL SELECT i+1,y,(x+y)%1000003 FROM f WHERE i<8000) SELECT x FROM f WHERE i=8000;\n"
  "SELECT count(DISTINCT substr(b,1,3))||' '||sum(CASE WHEN d>50 THEN abs(d-70) ELSE coalesce(nullif(d,3),-1) END) FROM t;\n"
  "\00")
 (func (export "run") (result i64) (local $cells i32) (local $database i32) (local $statement i32) (local $text i32) (local $end i32) (local $sum i64)
  call $construct
  (local.set $text (call $malloc (i32.const 65536)))
  (memory.init $script (local.get $text) (i32.const 0) (i32.const 1245))
  (local.set $cells (call $malloc (i32.const 64)))
  ;; ":memory:"
  (i64.store (local.get $cells) (i64.const 0x3a79726f6d656d3a))
  (i64.store offset=8 (local.get $cells) (i64.const 0))
  (if (call $open (local.get $cells) (i32.add (local.get $cells) (i32.const 8))) (then unreachable))
  (local.set $database (i32.load offset=8 (local.get $cells)))
  (i32.store offset=4 (local.get $cells) (local.get $text))
  (loop $statements
   (if (call $prepare (local.get $database) (i32.load offset=4 (local.get $cells)) (i32.const -1) (local.get $cells)
    (i32.add (local.get $cells) (i32.const 4))) (then unreachable))
   (local.set $statement (i32.load (local.get $cells)))
   (if (local.get $statement) (then
    (loop $rows
     (if (i32.eq (call $step (local.get $statement)) (i32.const 100)) (then
      (local.set $text (call $text (local.get $statement) (i32.const 0)))
      (loop $bytes
       (if (i32.load8_u (local.get $text)) (then
        (local.set $sum (i64.add (i64.mul (local.get $sum) (i64.const 31)) (i64.load8_u (local.get $text))))
        (local.set $text (i32.add (local.get $text) (i32.const 1)))
        br $bytes)))
      br $rows)))
    (drop (call $finalize (local.get $statement)))
    br $statements)))
  local.get $sum))
