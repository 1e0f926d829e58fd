//! Work that may hang in a file system is done on a thread of its own, so that the caller keeps its deadline.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::panics;
use crate::sys;

type Answer<T> = Result<T, Error>;

/// The work's answer; none if it has not come by the limit. It goes on all the same, and its answer is dropped.
pub(crate) fn by<T: Send + 'static>(
    limit: Option<Instant>,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> io::Result<Option<Answer<T>>> {
    let place = Arc::new((Mutex::new(None), Condvar::new()));
    let (there, mut work) = (place.clone(), Some(work));
    sys::spawn(Box::new(move || {
        let mut answer = None;
        let caught = panics::catch(&mut || {
            answer = work.take().map(|work| work());
            Ok(())
        });
        let answer = caught.map_or_else(|bug| Some(Err(bug)), |()| answer);
        *there.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        there.1.notify_one();
    }))?;
    let mut answer = place.0.lock().unwrap_or_else(PoisonError::into_inner);
    while answer.is_none() {
        answer = match limit.map(|limit| limit.checked_duration_since(Instant::now())) {
            None => place.1.wait(answer).unwrap_or_else(PoisonError::into_inner),
            Some(None) => break,
            Some(Some(rest)) => place.1.wait_timeout(answer, rest).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
    Ok(answer.take())
}
