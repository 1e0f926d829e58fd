//! Work that may hang in a file system is done on a thread of its own, so that the caller keeps its deadline.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::panics;
use crate::patience::FIRST_ANSWER;
use crate::sys;

type Answer<T> = Result<T, Error>;

/// A file system that says nothing for so long is given up by a call that has no deadline of its own.
const SILENCE: Duration = Duration::from_secs(10);

thread_local! {
    /// On a thread of ours, which may hang: the steps that its work has come through.
    static STEPS: RefCell<Option<Arc<AtomicU64>>> = const { RefCell::new(None) };
}

/// Starts a thread that may hang, and whose steps are counted.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<Arc<AtomicU64>> {
    let steps = Arc::new(AtomicU64::new(0));
    let counted = steps.clone();
    sys::spawn(Box::new(move || {
        STEPS.with(|steps| *steps.borrow_mut() = Some(counted));
        work();
    }))?;
    Ok(steps)
}

/// Says that the file system has answered, and that long work goes on.
pub(crate) fn step() {
    let _ = STEPS.try_with(|steps| {
        steps.borrow().iter().for_each(|steps| {
            steps.fetch_add(1, Ordering::Relaxed);
        });
    });
}

/// When a call without a deadline gives its file system up.
pub(crate) fn silence() -> Option<Instant> {
    Some(Instant::now() + SILENCE)
}

/// The work's answer; none if it has not come by the limit, or in [`FIRST_ANSWER`] if that is later, and no step after that
/// either. The work goes on all the same, and its answer is dropped.
pub(crate) fn by<T: Send + 'static>(
    limit: Option<Instant>,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> io::Result<Option<Answer<T>>> {
    let task = Task::new(work);
    task.start().map(|steps| task.wait(limit, &steps))
}

/// The same of work that may be done on this thread too: if it cannot hang, or if no other thread can be had. Silence is
/// an error.
pub(crate) fn answer<T: Send + 'static>(
    may_hang: bool,
    path: &Path,
    limit: Option<Instant>,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    if !may_hang || STEPS.try_with(|steps| steps.borrow().is_some()).unwrap_or(false) {
        return work();
    }
    let task = Task::new(work);
    let answer = match task.start() {
        Ok(steps) => task.wait(limit, &steps),
        Err(_) => {
            task.run();
            locked(&task.answer).take()
        }
    };
    answer.unwrap_or_else(|| Err(Error::Silent(path.to_owned())))
}

/// Work that is done once, and what comes of it.
struct Task<W, T> {
    work: Mutex<Option<W>>,
    answer: Mutex<Option<Answer<T>>>,
    answered: Condvar,
}

impl<T: Send + 'static, W: FnOnce() -> Answer<T> + Send + 'static> Task<W, T> {
    fn new(work: W) -> Arc<Task<W, T>> {
        Arc::new(Task { work: Mutex::new(Some(work)), answer: Mutex::new(None), answered: Condvar::new() })
    }

    fn start(self: &Arc<Self>) -> io::Result<Arc<AtomicU64>> {
        let task = self.clone();
        spawn(move || task.run())
    }

    fn run(&self) {
        let mut answer = None;
        let caught = panics::catch(&mut || {
            let work = locked(&self.work).take();
            answer = work.map(|work| work());
            Ok(())
        });
        let answer = caught.map_or_else(|bug| Some(Err(bug)), |()| answer);
        *locked(&self.answer) = answer;
        self.answered.notify_one();
    }

    fn wait(&self, limit: Option<Instant>, steps: &AtomicU64) -> Option<Answer<T>> {
        let mut limit = limit.map(|limit| limit.max(Instant::now() + FIRST_ANSWER));
        let mut steps_before = 0;
        let mut answer = locked(&self.answer);
        while answer.is_none() {
            answer = match limit.map(|limit| limit.checked_duration_since(Instant::now())) {
                None => self.answered.wait(answer).unwrap_or_else(PoisonError::into_inner),
                Some(Some(rest)) => {
                    self.answered.wait_timeout(answer, rest).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(None) => {
                    let steps = steps.load(Ordering::Relaxed);
                    if steps == steps_before {
                        break;
                    }
                    steps_before = steps;
                    limit = silence();
                    answer
                }
            };
        }
        answer.take()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// What the work says once it may end, and what the caller has got.
    fn asked(limit: Option<Instant>, end: mpsc::Receiver<()>) -> Answer<u32> {
        answer(true, Path::new("/cache"), limit, move || {
            end.recv().unwrap();
            Ok(7)
        })
    }

    #[test]
    fn silence_is_an_error_that_names_the_path() {
        let (_end, ends) = mpsc::channel();
        let error = asked(Some(Instant::now()), ends).unwrap_err();
        assert!(matches!(error, Error::Silent(_)) && error.to_string().contains("/cache"), "{error}");
    }

    #[test]
    fn an_answer_in_time_is_passed_on() {
        let (end, ends) = mpsc::channel();
        end.send(()).unwrap();
        assert_eq!(asked(None, ends).unwrap(), 7);
    }

    #[test]
    fn who_makes_steps_is_not_silent() {
        let (stepped, steps) = mpsc::channel();
        let task = Task::new(move || {
            step();
            stepped.send(()).unwrap();
            std::thread::sleep(FIRST_ANSWER + Duration::from_millis(200));
            Ok(7)
        });
        let counted = task.start().unwrap();
        steps.recv().unwrap();
        assert_eq!(task.wait(Some(Instant::now()), &counted).unwrap().unwrap(), 7);
    }

    #[test]
    fn on_a_thread_of_ours_work_is_done_at_once() {
        let (told, tells) = mpsc::channel();
        spawn(move || {
            let here = std::thread::current().id();
            let inside = answer(true, Path::new("/cache"), None, move || Ok(std::thread::current().id()));
            told.send(inside.unwrap() == here).unwrap();
        })
        .unwrap();
        assert!(tells.recv().unwrap());
    }

    #[test]
    fn a_bug_in_the_work_is_an_error() {
        let failed = answer(true, Path::new("/cache"), None, || -> Answer<()> { panic!("a bug") });
        assert!(matches!(failed, Err(Error::Internal(_))));
    }
}
