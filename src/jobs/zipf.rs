//! Zipf-distributed numbers, each computed from the number of its record.

use crate::base::rng::Rng;

/// Draws ranks `1 ..= n` with a probability in proportion to `rank^-s`, exactly (up to the rounding of `f64`) and in constant
/// expected time.
///
/// Rejection-inversion (Hörmann and Derflinger 1996). With `h(x) = x^-s` and its integral `H(x) = (x^(1-s) - 1) / (1-s)`, or
/// `ln x` for `s = 1`: draw `u` evenly between `H(1.5) - 1` and `H(n + 0.5)`, let `x = H^-1(u)` and `k` the nearest rank, and accept
/// it if `u >= H(k + 0.5) - h(k)`. The area below the curve that belongs to `k` is then exactly `h(k)`.
///
/// The draws for record `r` come from a generator seeded with `r`, so that a source can make any record again.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    /// `H(1.5) - 1` and `H(n + 0.5)`.
    low: f64,
    high: f64,
    /// A rank whose distance from `x` is at most this is accepted without a look at the curve.
    shift: f64,
}

impl Zipf {
    /// The distribution over `1 ..= ranks`.
    ///
    /// # Panics
    /// If there is no rank, or the exponent is negative or not a number.
    #[must_use]
    pub fn new(ranks: u64, exponent: f64) -> Self {
        assert!(ranks >= 1, "a distribution has ranks");
        assert!(exponent >= 0.0 && exponent.is_finite(), "the exponent is a number from 0 on");
        let mut zipf = Self { ranks: ranks as f64, exponent, low: 0.0, high: 0.0, shift: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.ranks + 0.5);
        zipf.shift = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// The rank for a record.
    #[must_use]
    pub fn rank(&self, record: u64) -> u64 {
        let mut rng = Rng::new(record);
        loop {
            // 53 random bits make an even number in 0 .. 1.
            let even = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let u = self.high + even * (self.low - self.high);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.ranks);
            if k - x <= self.shift || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let (log, rest) = (x.ln(), 1.0 - self.exponent);
        // The quotient loses its digits close to 1; the first terms of its series do not.
        if (rest * log).abs() < 1e-8 { log * (1.0 + rest * log / 2.0) } else { (rest * log).exp_m1() / rest }
    }

    fn inverse(&self, y: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        let scaled = (rest * y).max(-1.0);
        if scaled.abs() < 1e-8 { (y * (1.0 - scaled / 2.0)).exp() } else { (scaled.ln_1p() / rest).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_occur_as_often_as_their_weight_says() {
        const DRAWS: u64 = 200_000;
        for exponent in [0.0, 0.5, 1.0, 1.000_000_1, 1.5, 3.0] {
            for ranks in [1u64, 2, 10, 1000] {
                let zipf = Zipf::new(ranks, exponent);
                let mut counts = vec![0u64; ranks as usize];
                (0..DRAWS).for_each(|record| counts[zipf.rank(record) as usize - 1] += 1);
                let weight = |rank: u64| (rank as f64).powf(-exponent);
                let total: f64 = (1..=ranks).map(weight).sum();
                for rank in 1..=ranks.min(10) {
                    let share = weight(rank) / total;
                    let expected = share * DRAWS as f64;
                    let deviation = (expected * (1.0 - share)).sqrt();
                    let off = (counts[rank as usize - 1] as f64 - expected).abs();
                    assert!(
                        off <= 5.0 * deviation + 1.0,
                        "rank {rank} of {ranks}, s = {exponent}: off by {off}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_record_always_has_the_same_rank() {
        let zipf = Zipf::new(1_000_000, 1.0);
        let ranks = |zipf: &Zipf| (0..1000).map(|record| zipf.rank(record)).collect::<Vec<_>>();
        assert_eq!(ranks(&zipf), ranks(&zipf.clone()));
        assert!(ranks(&zipf).iter().all(|rank| (1..=1_000_000).contains(rank)));
    }
}
