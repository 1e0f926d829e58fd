//! The core's paths, for development: `cargo bench --bench core`.

use std::path::Path;

use criterion::{criterion_group, criterion_main, Criterion};
use jitlock::{acquire, clear_cache, info, query, release, Options, Timeout};

fn core(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let take = |cache: &Path, shared: bool| {
        let options = Options { shared, ..Options::new(cache, Timeout::Default) };
        acquire(options).unwrap()
    };
    criterion
        .bench_function("acquire and release", |bench| bench.iter(|| release(take(&cache, false)).unwrap()));
    criterion.bench_function("acquire and release, shared", |bench| {
        bench.iter(|| release(take(&cache, true)).unwrap())
    });
    let lock = take(&cache, false);
    criterion.bench_function("info", |bench| bench.iter(|| info(lock).unwrap()));
    criterion.bench_function("query of a held lock", |bench| bench.iter(|| query(&cache, None).unwrap()));
    release(lock).unwrap();
    criterion.bench_function("clear of nothing", |bench| {
        bench.iter(|| clear_cache(&cache, Timeout::Default).unwrap());
    });
}

criterion_group!(benches, core);
criterion_main!(benches);
