//! The instructions that set one register, as bytes.

use cranelift_codegen::binemit::Reloc;

/// The instructions that set one register, and their relocations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    bytes: [u8; Setting::MOST],
    length: u8,
    /// The offset from the start of the instructions, the kind, and the addend in bytes.
    relocations: [Option<(u8, Reloc, i64)>; 2],
    /// Whether it takes longer than one simple instruction.
    slow: bool,
}

impl Setting {
    /// Bytes: five instructions of aarch64.
    const MOST: usize = 20;

    pub const EMPTY: Setting =
        Setting { bytes: [0; Setting::MOST], length: 0, relocations: [None; 2], slow: false };

    /// This setting, then these bytes.
    pub fn then(mut self, bytes: &[u8]) -> Setting {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
        self
    }

    /// This setting, with the following bytes relocated.
    pub fn relocated(mut self, kind: Reloc, addend: i64) -> Setting {
        let at = usize::from(self.relocations[0].is_some());
        self.relocations[at] = Some((self.length, kind, addend));
        self
    }

    /// This setting, marked slow.
    pub fn slow(self) -> Setting {
        Setting { slow: true, ..self }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub fn relocations(&self) -> impl Iterator<Item = (u32, Reloc, i64)> {
        let relocations = self.relocations.into_iter().flatten();
        relocations.map(|(offset, kind, addend)| (u32::from(offset), kind, addend))
    }

    /// Fewer bytes come first, then fewer that are slow.
    pub fn cost(&self) -> u32 {
        // There are fewer registers than that.
        u32::from(self.length) * 16 + u32::from(self.slow)
    }
}
