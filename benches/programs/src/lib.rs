//! Programs in which functions are similar: generic code for several types, closures, trait
//! objects.
//!
//! Every exported function takes the amount of work and returns a checksum of all of it. It imports
//! nothing, not even more memory, and frees what it allocated.

#![no_std]

extern crate alloc;

mod graph;
mod heap;
mod json;
mod machine;
mod maps;
mod matrix;
mod random;
mod shapes;
mod sorts;
mod table;
mod text;

/// A panic cannot be reported.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

macro_rules! programs {
    ($($name:ident: $run:path),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(n: u32) -> u64 {
            $run(n)
        }
    )*};
}

programs! {
    btree_maps: maps::run,
    hash_maps: table::run,
    sorting: sorts::run,
    formatting: text::run,
    json_values: json::run,
    interpreters: machine::run,
    matrices: matrix::run,
    trait_objects: shapes::run,
    graphs: graph::run,
}
