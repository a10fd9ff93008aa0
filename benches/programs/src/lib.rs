//! Programs in which functions are alike: generic code for several types, closures, trait objects.
//!
//! Every exported function takes how much there is to do and returns a checksum of all that it did.
//! It needs nothing from outside, not even more memory, and gives back what it allocated.

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

/// There is nobody to tell.
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
