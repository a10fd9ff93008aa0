//! The ISAs that code is compiled for.

use cranelift_codegen::isa::{self, Builder, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};

/// The target of this machine, with nothing but what every processor of it has.
pub const HOST: &str = match cfg!(target_arch = "aarch64") {
    true => "aarch64-unknown-linux-gnu",
    false => "x86_64-unknown-linux-gnu",
};

/// Settings that some instructions ask for.
pub const ANY_INSTRUCTION: [(&str, &str); 2] =
    [("enable_pinned_reg", "true"), ("preserve_frame_pointers", "true")];

/// This machine, with all that its processor has.
pub fn native(settings: &[(&str, &str)]) -> OwnedTargetIsa {
    built(cranelift_native::builder().expect("a back end for this machine"), settings)
}

/// A target, by its triple or only its architecture.
pub fn of(target: &str, settings: &[(&str, &str)]) -> OwnedTargetIsa {
    let triple = target.parse().expect("a target triple");
    built(isa::lookup(triple).expect("is built in"), settings)
}

/// The target that a builder makes with these settings.
pub fn built(builder: Builder, settings: &[(&str, &str)]) -> OwnedTargetIsa {
    let mut flags = settings::builder();
    for (name, value) in settings {
        flags.set(name, value).expect("a shared setting");
    }
    builder.finish(Flags::new(flags)).expect("settings that go together")
}

/// The value of a setting that is on or off.
pub fn switch(is_on: bool) -> &'static str {
    if is_on { "true" } else { "false" }
}

/// The level of optimisation.
pub fn opt_level(speed: bool) -> &'static str {
    if speed { "speed" } else { "none" }
}
