// jitlock from Node.js, by koffi. Waits run on a worker thread, so the event loop goes on.

const fs = require('fs');
const readline = require('readline');
const koffi = require('koffi');

const library = koffi.load(process.env.JITLOCK_LIBRARY || 'libjitlock.so.0');

koffi.struct('jitlock_options_t', {
  struct_size: 'size_t',
  timeout_ms: 'int64_t',
  flags: 'uint32_t',
  progress_interval_ms: 'uint32_t',
  lock_path: 'const char *',
  progress: 'void *',
  user: 'void *',
  error: 'void *',
  error_size: 'size_t',
});
const acquireWith = library.func(
  'int32_t jitlock_acquire_with(const char *cache_dir, const jitlock_options_t *options, _Out_ uint64_t *lock)');
const release = library.func('int32_t jitlock_release(uint64_t lock)');
const strerror = library.func('const char *jitlock_strerror(int32_t status)');

const ANY_THREAD = 1 << 2;

function acquire(cache, seconds) {
  const message = Buffer.alloc(1024);
  const options = {
    struct_size: koffi.sizeof('jitlock_options_t'),
    timeout_ms: Math.ceil(seconds * 1000),
    // A call comes from whichever thread of the pool is free.
    flags: ANY_THREAD,
    progress_interval_ms: 0,
    lock_path: null,
    progress: null,
    user: null,
    error: message,
    error_size: message.length,
  };
  const lock = [0];
  return new Promise((resolve, reject) => {
    acquireWith.async(cache, options, lock, (failure, status) => {
      if (failure) return reject(failure);
      if (status !== 0) return reject(new Error(message.toString('utf8', 0, message.indexOf(0))));
      resolve(lock[0]);
    });
  });
}

function giveBack(lock) {
  const status = release(lock);
  if (status !== 0) throw new Error(strerror(status));
}

async function main([command, cache, ...rest]) {
  if (command === 'hold') {
    const lock = await acquire(cache, 600);
    console.log('held');
    for await (const _ of readline.createInterface({ input: process.stdin })) break;
    giveBack(lock);
    console.log('released');
  } else if (command === 'try') {
    giveBack(await acquire(cache, Number(rest[0])));
    console.log('had it');
  } else if (command === 'count') {
    for (let i = 0; i < Number(rest[1]); i++) {
      const lock = await acquire(cache, 600);
      fs.writeFileSync(rest[0], String(Number(fs.readFileSync(rest[0], 'utf8')) + 1));
      giveBack(lock);
    }
  } else {
    throw new Error('usage: lock.js hold CACHE | try CACHE SECONDS | count CACHE FILE TIMES');
  }
}

main(process.argv.slice(2)).then(() => process.exit(0), (error) => {
  console.error(error.message);
  process.exit(1);
});
