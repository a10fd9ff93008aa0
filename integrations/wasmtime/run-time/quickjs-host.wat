;; What QuickJS imports: none of it is used.
(module
 (func (export "host_get_timezone_offset") (param i32 i32) (result i32) i32.const 0)
 (func (export "host_interrupt") (result i32) i32.const 0)
 (func (export "host_promise_rejection") (param i32 i32 i32))
 (func (export "host_module_normalize") (param i32 i32) (result i32) i32.const 0)
 (func (export "host_module_load") (param i32 i32) (result i32) i32.const 0)
 (func (export "host_call") (param i32 i32 i32 i32 i32) (result i32) i32.const 0))
