//! What can happen to bytes.

use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) enum Damage {
    Flip(usize, u8),
    Cut(usize),
    Insert(usize, u8),
    /// The bytes from the first place on, as many as the second number says, once more.
    Duplicate(usize, usize),
    Swap(usize, usize),
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let at = 0..usize::MAX;
    prop_oneof![
        (at.clone(), 1..=255u8).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        at.clone().prop_map(Damage::Cut),
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        (at.clone(), 1..40usize).prop_map(|(at, count)| Damage::Duplicate(at, count)),
        (at.clone(), at).prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

pub(crate) fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    if length == 0 {
        return;
    }
    match *damage {
        Damage::Flip(at, mask) => bytes[at % length] ^= mask,
        Damage::Cut(at) => bytes.truncate(at % length),
        Damage::Insert(at, byte) => bytes.insert(at % length, byte),
        Damage::Duplicate(at, count) => {
            let at = at % length;
            let end = (at + count).min(length);
            let piece = bytes[at..end].to_vec();
            bytes.splice(end..end, piece);
        }
        Damage::Swap(a, b) => bytes.swap(a % length, b % length),
    }
}
