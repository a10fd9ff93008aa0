// The units of docs/units.md, and two of this repository.

/** The unit that is always here, and needs no network. */
export const SAMPLE = "rust-generics";

// `clif` is a file in CLIF_MERGE_UNITS, `sample` and `crate` are paths in this repository; `from` is a file of the npm
// package or of Cargo's target directory; `sha256` is that of the module.
export const units = [
  {
    name: "rust-debug",
    about: "five Rust crates, unoptimised",
    clif: "rust-debug.clif",
  },
  {
    name: "rust-generics",
    about: "the sample: unoptimised Rust",
    sample: "samples/rust-generics.clif",
  },
  {
    name: "programs",
    about: "generic Rust, unoptimised",
    crate: "benches/programs",
    from: "wasm32-unknown-unknown/debug/programs.wasm",
  },
  {
    name: "swc-ts",
    about: "TypeScript in swc, Rust",
    package: "@swc/wasm-typescript@1.16.2",
    from: "wasm.js",
    base64: true,
    sha256: "8d58b4dd3dc9f9081e7e5330879864e99427b2c8746bd3b1198f053062e8cc1b",
  },
  {
    name: "rollup",
    about: "JavaScript bundler, Rust",
    package: "@rollup/wasm-node@4.68.4",
    from: "dist/wasm-node/bindings_wasm_bg.wasm",
    sha256: "bd6cbba6ec4c28614224000af39c5476606319cb6f0702c60560a2a2f6d8b48b",
  },
  {
    name: "resvg",
    about: "SVG renderer, Rust",
    package: "@resvg/resvg-wasm@2.6.2",
    from: "index_bg.wasm",
    sha256: "22bf6e9f9a100d972da0411a69c5ba504367fc1fa87b3b64e3f35e53926d2d70",
  },
  {
    name: "libarchive",
    about: "libarchive, C",
    package: "libarchive.js@2.0.2",
    from: "dist/libarchive.wasm",
    sha256: "8a66066ed3ea1e6db0469ec752d8fca888a6bf737c6cff21fdbcb62241a72424",
  },
  {
    name: "as-sha256",
    about: "SHA-256, AssemblyScript",
    package: "@chainsafe/as-sha256@1.2.5",
    from: "build/optimized.simd.wasm",
    sha256: "50832bc14995b6d5cff1b55890d1ee79343c63433f2d030e24d6da2488125d91",
  },
];
