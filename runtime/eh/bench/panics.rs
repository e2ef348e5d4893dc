// What a panic and its catch cost: prints "NAME N NANOSECONDS" a line.
use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};
use std::time::Instant;

struct Cleanup(u64);
impl Drop for Cleanup {
    fn drop(&mut self) {
        black_box(self.0);
    }
}

#[inline(never)]
fn plain(n: u32) -> u32 {
    if n <= 1 {
        resume_unwind(Box::new(1u32));
    }
    plain(black_box(n - 1)) + black_box(1)
}

#[inline(never)]
fn cleanups(n: u32) -> u32 {
    let _c = Cleanup(black_box(n as u64));
    if n <= 1 {
        resume_unwind(Box::new(1u32));
    }
    cleanups(black_box(n - 1)) + black_box(1)
}

#[inline(never)]
fn panics(n: u32) -> u32 {
    if n <= 1 {
        panic!("x");
    }
    panics(black_box(n - 1)) + black_box(1)
}

fn show(name: &str, n: u32, f: fn(u32) -> u32) {
    let mut least = f64::MAX;
    for _ in 0..20 {
        let begin = Instant::now();
        for _ in 0..200 {
            assert!(catch_unwind(|| f(n)).is_err());
        }
        least = least.min(begin.elapsed().as_nanos() as f64 / 200.0);
    }
    println!("{name} {n} {least:.1}");
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    for n in [1, 16, 64] {
        show("rust-plain", n, plain);
        show("rust-cleanups", n, cleanups);
        show("rust-panic", n, panics);
    }
}
