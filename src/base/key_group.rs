//! From a key to its hash, its key group and the subtask that owns the group.
//!
//! The hash is part of the snapshot format: a key must come back to the group in which its state was written,
//! whatever the version of Rust, of this crate or of the machine. It is therefore a function of the key's canonical
//! bytes alone and is pinned by golden vectors. Rust's own `Hash` gives no such promise and is never used for it.
//!
//! * Integers up to 64 bits: one folded multiplication of the sign-extended value.
//! * All other keys: xxh3 (64 bit, seed 0) of the canonical bytes, where integers are fixed-width little-endian, text is
//!   UTF-8, and the parts of a compound key are each preceded by their length as a little-endian `u32`.
//!
//! The key group comes from the upper half of the hash; tables inside a group use the lower half.

use xxhash_rust::xxh3::xxh3_64;

use super::id::SubtaskIndex;

/// A value whose hash never changes.
///
/// Equal keys have equal canonical bytes and different keys different ones.
pub trait StableHash {
    /// Appends the canonical bytes.
    fn canonical_bytes(&self, out: &mut Vec<u8>);

    /// The stable hash of the canonical bytes.
    #[inline]
    fn stable_hash(&self) -> u64 {
        let mut bytes = Vec::new();
        self.canonical_bytes(&mut bytes);
        xxh3_64(&bytes)
    }

    /// Name of the type's canonical form, such as `u64` or `(str,i32)`. Stored with a snapshot: state is found again only under keys
    /// of the same form.
    fn canonical_form() -> String;

    /// How the hash reaches the consumer of an exchange: with the record, or by hashing again where that is cheaper.
    type Carried: CarriedHash;
}

/// What a record carries so that its key need not be hashed a second time.
pub trait CarriedHash:
    Copy + Send + Sync + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned + 'static
{
    /// Keeps a hash that was just computed.
    fn carry(hash: u64) -> Self;

    /// The hash of the key that came with it.
    fn hash<K: StableHash + ?Sized>(self, key: &K) -> u64;
}

/// The hash itself, eight bytes a record.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Carried(u64);

impl CarriedHash for Carried {
    #[inline]
    fn carry(hash: u64) -> Self {
        Self(hash)
    }

    #[inline]
    fn hash<K: StableHash + ?Sized>(self, _key: &K) -> u64 {
        self.0
    }
}

/// Nothing: an integer is hashed again in about a nanosecond, less than eight more bytes a record cost.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Rehashed;

impl CarriedHash for Rehashed {
    #[inline]
    fn carry(_hash: u64) -> Self {
        Self
    }

    #[inline]
    fn hash<K: StableHash + ?Sized>(self, key: &K) -> u64 {
        key.stable_hash()
    }
}

/// Two random odd words; part of the snapshot format.
const FOLD_XOR: u64 = 0x2D35_8DCC_AA6C_78A5;
const FOLD_MULTIPLY: u64 = 0x8BB8_4B93_962E_ACC9;

#[inline]
fn hash_integer(value: u64) -> u64 {
    let product = u128::from(value ^ FOLD_XOR) * u128::from(FOLD_MULTIPLY);
    (product as u64) ^ ((product >> 64) as u64)
}

macro_rules! integer_keys {
    ($($int:ty),*) => {$(
        impl StableHash for $int {
            fn canonical_form() -> String {
                stringify!($int).to_owned()
            }

            #[inline]
            fn canonical_bytes(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            #[allow(clippy::cast_lossless, clippy::cast_sign_loss, reason = "sign extension is the definition")]
            fn stable_hash(&self) -> u64 {
                hash_integer(*self as i64 as u64)
            }

            type Carried = Rehashed;
        }
    )*};
}
integer_keys!(u8, u16, u32, u64, i8, i16, i32, i64);

impl StableHash for bool {
    fn canonical_form() -> String {
        "bool".to_owned()
    }

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn stable_hash(&self) -> u64 {
        hash_integer(u64::from(*self))
    }

    type Carried = Rehashed;
}

impl StableHash for char {
    fn canonical_form() -> String {
        "char".to_owned()
    }

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        u32::from(*self).canonical_bytes(out);
    }

    fn stable_hash(&self) -> u64 {
        u32::from(*self).stable_hash()
    }

    type Carried = Rehashed;
}

/// The only value has no bytes. Its hash is 0, so that mixing it into another hash changes nothing.
impl StableHash for () {
    fn canonical_form() -> String {
        "()".to_owned()
    }

    fn canonical_bytes(&self, _out: &mut Vec<u8>) {}

    #[inline]
    fn stable_hash(&self) -> u64 {
        0
    }

    type Carried = Rehashed;
}

impl StableHash for u128 {
    fn canonical_form() -> String {
        "u128".to_owned()
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl StableHash for i128 {
    fn canonical_form() -> String {
        "i128".to_owned()
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl StableHash for str {
    fn canonical_form() -> String {
        "str".to_owned()
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    #[inline]
    fn stable_hash(&self) -> u64 {
        xxh3_64(self.as_bytes())
    }
}

impl StableHash for String {
    fn canonical_form() -> String {
        str::canonical_form()
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        self.as_str().canonical_bytes(out);
    }

    #[inline]
    fn stable_hash(&self) -> u64 {
        self.as_str().stable_hash()
    }
}

impl StableHash for [u8] {
    fn canonical_form() -> String {
        "bytes".to_owned()
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    #[inline]
    fn stable_hash(&self) -> u64 {
        xxh3_64(self)
    }
}

impl StableHash for Vec<u8> {
    fn canonical_form() -> String {
        <[u8]>::canonical_form()
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        self.as_slice().canonical_bytes(out);
    }

    #[inline]
    fn stable_hash(&self) -> u64 {
        self.as_slice().stable_hash()
    }
}

impl<T: StableHash + ?Sized> StableHash for Box<T> {
    fn canonical_form() -> String {
        T::canonical_form()
    }

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        (**self).canonical_bytes(out);
    }

    fn stable_hash(&self) -> u64 {
        (**self).stable_hash()
    }

    type Carried = Carried;
}

/// Appends one part of a compound key, preceded by its length.
fn canonical_part<T: StableHash + ?Sized>(part: &T, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    part.canonical_bytes(out);
    let length = u32::try_from(out.len() - start - 4).expect("a key part is below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

impl<T: StableHash> StableHash for Option<T> {
    fn canonical_form() -> String {
        format!("option({})", T::canonical_form())
    }

    type Carried = Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            canonical_part(value, out);
        }
    }
}

macro_rules! tuple_keys {
    ($($name:ident),*) => {
        impl<$($name: StableHash),*> StableHash for ($($name,)*) {
    fn canonical_form() -> String {
            let parts: Vec<String> = vec![$($name::canonical_form()),*];
            format!("({})", parts.join(","))
    }

    type Carried = Carried;

            #[allow(non_snake_case, reason = "one binding per type parameter")]
            fn canonical_bytes(&self, out: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $(canonical_part($name, out);)*
            }
        }
    };
}
tuple_keys!(A);
tuple_keys!(A, B);
tuple_keys!(A, B, C);
tuple_keys!(A, B, C, D);

/// The most key groups that a job can have.
pub const MAX_PARALLELISM_LIMIT: u32 = 32_768;

/// A key group: the unit in which keyed state is stored and moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct KeyGroup(pub u16);

/// How the keys of a job are divided: into `max_parallelism` groups, and the groups among `parallelism` subtasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyGroups {
    max_parallelism: u32,
    parallelism: u32,
    /// `floor(2^64 / max_parallelism) + 1`, for the exact remainder by multiplication (Lemire, Kaser, Kurz 2019).
    reciprocal: u64,
}

impl KeyGroups {
    /// # Panics
    /// Unless `1 <= parallelism <= max_parallelism <= 32768`; graph validation reports that as an error first.
    #[must_use]
    pub fn new(max_parallelism: u32, parallelism: u32) -> Self {
        assert!(max_parallelism <= MAX_PARALLELISM_LIMIT, "at most {MAX_PARALLELISM_LIMIT} key groups");
        assert!(parallelism >= 1 && parallelism <= max_parallelism, "parallelism out of range");
        let reciprocal = (u64::MAX / u64::from(max_parallelism)).wrapping_add(1);
        Self { max_parallelism, parallelism, reciprocal }
    }

    /// Number of key groups.
    #[must_use]
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// Number of subtasks.
    #[must_use]
    pub fn parallelism(&self) -> u32 {
        self.parallelism
    }

    /// The group of the key with this hash: the upper half of the hash modulo the number of groups.
    #[inline]
    #[must_use]
    pub fn group(&self, hash: u64) -> KeyGroup {
        let upper = (hash >> 32) as u32;
        // Exact for every 32-bit numerator; for one group the reciprocal wraps to 0 and the answer is 0.
        let fraction = self.reciprocal.wrapping_mul(u64::from(upper));
        KeyGroup(((u128::from(fraction) * u128::from(self.max_parallelism)) >> 64) as u16)
    }

    /// The subtask that owns the group.
    #[inline]
    #[must_use]
    pub fn subtask_of_group(&self, group: KeyGroup) -> SubtaskIndex {
        SubtaskIndex(u32::from(group.0) * self.parallelism / self.max_parallelism)
    }

    /// The subtask that owns the key with this hash.
    #[inline]
    #[must_use]
    pub fn subtask(&self, hash: u64) -> SubtaskIndex {
        self.subtask_of_group(self.group(hash))
    }

    /// The contiguous groups that a subtask owns.
    #[must_use]
    pub fn range(&self, subtask: SubtaskIndex) -> KeyGroupRange {
        let start = |index: u32| (index * self.max_parallelism).div_ceil(self.parallelism);
        KeyGroupRange { start: start(subtask.0), end: start(subtask.0 + 1) }
    }
}

/// A contiguous run of key groups, `start` included, `end` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct KeyGroupRange {
    /// First group.
    pub start: u32,
    /// One past the last group.
    pub end: u32,
}

impl KeyGroupRange {
    /// Number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// True if no group is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the group is in it.
    #[must_use]
    pub fn contains(&self, group: KeyGroup) -> bool {
        (self.start..self.end).contains(&u32::from(group.0))
    }

    /// The groups in order.
    pub fn iter(&self) -> impl Iterator<Item = KeyGroup> + use<> {
        (self.start..self.end)
            .map(|group| KeyGroup(u16::try_from(group).expect("group numbers are below the limit of 32768")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash decides where state is found again: these values must never change.
    #[test]
    fn golden_vectors_of_the_stable_hash() {
        let golden: &[(u64, u64)] = &[
            (0u64.stable_hash(), GOLDEN[0]),
            (1u64.stable_hash(), GOLDEN[1]),
            (u64::MAX.stable_hash(), GOLDEN[2]),
            ((-1i32).stable_hash(), GOLDEN[2]),
            (42u8.stable_hash(), GOLDEN[3]),
            ("".stable_hash(), GOLDEN[4]),
            ("stoplog".stable_hash(), GOLDEN[5]),
            (String::from("stoplog").stable_hash(), GOLDEN[5]),
            (("a".to_owned(), 7u32).stable_hash(), GOLDEN[6]),
            (1u128.stable_hash(), GOLDEN[7]),
            (Some(3u64).stable_hash(), GOLDEN[8]),
        ];
        for (index, (got, want)) in golden.iter().enumerate() {
            assert_eq!(got, want, "vector {index}");
        }
    }

    /// Cross-checked with an independent implementation of xxh3 and of the folded multiplication.
    const GOLDEN: [u64; 9] = [
        0xCA81_3BF4_C7AB_F0A9,
        0x5ED9_C758_B9C4_8DE0,
        0xD111_BBF2_944B_FA09,
        0xC8FB_BAA5_EFA8_D95F,
        0x2D06_8005_38D3_94C2,
        0x31F0_EC7F_F833_726F,
        0xBE32_CB9D_E4C9_B9AA,
        0x26F2_A114_8CF5_2011,
        0x2B4C_0E49_EA36_9105,
    ];

    #[test]
    fn parts_of_a_compound_key_do_not_run_together() {
        let left = ("ab".to_owned(), "c".to_owned()).stable_hash();
        let right = ("a".to_owned(), "bc".to_owned()).stable_hash();
        assert_ne!(left, right);
    }

    #[test]
    fn the_group_is_the_exact_remainder_of_the_upper_half() {
        let mut rng = crate::base::rng::Rng::new(1);
        for max in [1, 2, 3, 7, 100, 127, 128, 129, 4096, 32_767, 32_768] {
            let groups = KeyGroups::new(max, 1);
            for _ in 0..2000 {
                let hash = rng.next_u64();
                assert_eq!(u64::from(groups.group(hash).0), (hash >> 32) % u64::from(max));
            }
            assert_eq!(u64::from(groups.group(u64::MAX).0), 0xFFFF_FFFF % u64::from(max));
        }
    }

    #[test]
    fn ranges_partition_the_groups_and_agree_with_the_owner() {
        for max in [1u32, 2, 5, 128, 1000, 32_768] {
            for parallelism in [1u32, 2, 3, 7, 33, 64, 128].into_iter().filter(|p| *p <= max) {
                let groups = KeyGroups::new(max, parallelism);
                let mut next = 0;
                for index in 0..parallelism {
                    let range = groups.range(SubtaskIndex(index));
                    assert_eq!(range.start, next, "no gap and no overlap");
                    next = range.end;
                    for group in range.iter() {
                        assert_eq!(groups.subtask_of_group(group), SubtaskIndex(index));
                    }
                }
                assert_eq!(next, max);
            }
        }
    }

    /// Dense, strided and negative integers must all spread over groups and over the lower bits.
    #[test]
    fn integer_keys_spread_whatever_their_stride() {
        for stride in [1u64, 2, 8, 128, 1 << 16, 1 << 32, 1 << 40, u64::MAX] {
            let groups = KeyGroups::new(128, 1);
            let mut per_group = [0u32; 128];
            let mut per_slot = [0u32; 256];
            for n in 0..12_800u64 {
                let hash = n.wrapping_mul(stride).stable_hash();
                per_group[usize::from(groups.group(hash).0)] += 1;
                per_slot[(hash & 255) as usize] += 1;
            }
            assert!(per_group.iter().all(|n| (40..220).contains(n)), "stride {stride}: {per_group:?}");
            assert!(per_slot.iter().all(|n| (10..130).contains(n)), "stride {stride}: {per_slot:?}");
        }
    }
}
