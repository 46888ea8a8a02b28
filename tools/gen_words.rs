//! Writes the text for the word-count measurements: Zipf(1.0) over 100 000 distinct words of 2 to 10 letters, 12 words a line.
//!
//! `cargo run --release --example gen_words -- PATH [MEGABYTES]` (default 200). The same arguments always give the same bytes.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};

use stoplog::base::rng::Rng;

const WORDS: usize = 100_000;
const WORDS_PER_LINE: u32 = 12;
const SEED: u64 = 2026;

fn vocabulary(rng: &mut Rng) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut words = Vec::with_capacity(WORDS);
    while words.len() < WORDS {
        let length = 2 + rng.below(9);
        let word: String = (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words
}

/// `cumulative[i]` is the weight of the first `i + 1` words, where word `i` weighs `1 / (i + 1)`.
fn cumulative_weights() -> Vec<f64> {
    let mut sum = 0.0;
    (0..WORDS)
        .map(|rank| {
            sum += 1.0 / (rank + 1) as f64;
            sum
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: gen_words PATH [MEGABYTES]")?;
    let bytes_wanted = arguments.next().map_or(Ok(200), |text| text.parse::<u64>())? * 1_000_000;
    let mut rng = Rng::new(SEED);
    let words = vocabulary(&mut rng);
    let cumulative = cumulative_weights();
    let total = cumulative[WORDS - 1];
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    let (mut bytes, mut count) = (0u64, 0u64);
    while bytes < bytes_wanted {
        for position in 0..WORDS_PER_LINE {
            let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let rank = cumulative.partition_point(|weight| *weight <= uniform * total).min(WORDS - 1);
            let word = words[rank].as_bytes();
            out.write_all(word)?;
            out.write_all(if position + 1 == WORDS_PER_LINE { b"\n" } else { b" " })?;
            bytes += word.len() as u64 + 1;
            count += 1;
        }
    }
    out.flush()?;
    println!("{path}: {bytes} bytes, {count} words");
    Ok(())
}
