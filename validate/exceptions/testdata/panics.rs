// Panics of Rust: drops, panics in drops, threads, resume_unwind, uncaught.
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
static DROPS: AtomicUsize = AtomicUsize::new(0);
struct Note;
impl Drop for Note { fn drop(&mut self) { DROPS.fetch_add(1, Ordering::Relaxed); } }
struct Catches;
impl Drop for Catches { fn drop(&mut self) { let r = panic::catch_unwind(|| { deep(2) }); DROPS.fetch_add(r.is_err() as usize, Ordering::Relaxed); } }
#[inline(never)] fn deep(n: usize) -> usize { let _x = Note; if n == 0 { panic!("deep") } deep(n - 1) + 1 }
#[inline(never)] fn with_catch(n: usize) -> usize { let _c = Catches; deep(n) }
fn main() {
    panic::set_hook(Box::new(|_| {}));
    let mut caught = 0;
    for i in 0..2000 { caught += panic::catch_unwind(|| deep(i % 20)).is_err() as usize; }
    println!("{} {}", caught, DROPS.load(Ordering::Relaxed));
    for _ in 0..100 { caught += panic::catch_unwind(|| with_catch(3)).is_err() as usize; }
    println!("{} {}", caught, DROPS.load(Ordering::Relaxed));
    let ts: Vec<_> = (0..4).map(|t| std::thread::spawn(move || { for _ in 0..500 { let _ = panic::catch_unwind(|| deep(t + 1)); } deep(3) })).collect();
    for t in ts { println!("{}", t.join().is_err()); }
    println!("{}", DROPS.load(Ordering::Relaxed));
    let r = panic::catch_unwind(AssertUnwindSafe(|| { panic::resume_unwind(Box::new(5i32)) }));
    println!("{:?}", r.unwrap_err().downcast_ref::<i32>());
    let v: Vec<i32> = vec![1];
    println!("{}", panic::catch_unwind(|| v[5]).is_err());
    deep(1);
}
