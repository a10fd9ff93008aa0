;; What SQLite imports of WASI: an empty environment, and files that cannot be used.
(module
 (func (export "fd_close") (param i32) (result i32) i32.const 8)
 (func (export "fd_write") (param i32 i32 i32 i32) (result i32) i32.const 8)
 (func (export "fd_read") (param i32 i32 i32 i32) (result i32) i32.const 8)
 (func (export "fd_sync") (param i32) (result i32) i32.const 8)
 (func (export "environ_sizes_get") (param i32 i32) (result i32) i32.const 0)
 (func (export "environ_get") (param i32 i32) (result i32) i32.const 0)
 (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) i32.const 8)
 (func (export "fd_fdstat_get") (param i32 i32) (result i32) i32.const 8)
)
