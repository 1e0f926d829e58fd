//! How long a caller is ready to wait.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{printable, Argument, Error};

/// The environment's default timeout, in seconds.
const VARIABLE: &str = "JITLOCK_TIMEOUT";

/// The default without it. Ten minutes: the longest cold kernel build that users report, twice over.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// A build may take this many times its measured compile time before a waiter gives up.
const BASELINE_FACTOR: f64 = 5.0;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// At most so long; zero tries once.
    After(Duration),
    /// Without bound.
    Never,
    /// `JITLOCK_TIMEOUT` if it is set, else [`DEFAULT_TIMEOUT`].
    Default,
}

impl Timeout {
    /// From the C API's milliseconds: -1 waits for ever, -2 is the default, any other negative is refused.
    pub fn from_millis(millis: i64) -> Result<Timeout, Error> {
        match (u64::try_from(millis), millis) {
            (Ok(millis), _) => Ok(Timeout::After(Duration::from_millis(millis))),
            (Err(_), -1) => Ok(Timeout::Never),
            (Err(_), -2) => Ok(Timeout::Default),
            (Err(_), _) => Err(Argument::Timeout(millis).into()),
        }
    }
}

/// The timeout as an instant, fixed once at the start of a call so that retries do not lengthen it.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    pub started: Instant,
    /// None: never. Also what lies beyond the clock's range.
    pub at: Option<Instant>,
    pub try_once: bool,
    pub note: Option<BadEnvironment>,
}

impl Deadline {
    pub(crate) fn new(timeout: Timeout) -> Deadline {
        let (limit, note) = match timeout {
            Timeout::After(limit) => (Some(limit), None),
            Timeout::Never => (None, None),
            Timeout::Default => match from_environment() {
                Ok(limit) => (Some(limit.unwrap_or(DEFAULT_TIMEOUT)), None),
                Err(bad) => (Some(DEFAULT_TIMEOUT), Some(bad)),
            },
        };
        let started = Instant::now();
        Deadline {
            started,
            at: limit.and_then(|limit| started.checked_add(limit)),
            try_once: limit == Some(Duration::ZERO),
            note,
        }
    }

    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// A `JITLOCK_TIMEOUT` that is no number of seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEnvironment(OsString);

impl fmt::Display for BadEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = DEFAULT_TIMEOUT.as_secs();
        let value = printable(self.0.as_encoded_bytes());
        write!(f, "{VARIABLE}=\"{value}\" is no number of seconds, so the default of {default} s was used")
    }
}

/// The timeout for a kernel whose compilation was once measured: the environment's value if it is set, else
/// the default or five times the baseline, whichever is more. A baseline that is not a positive number counts
/// as none.
pub fn timeout_for_baseline(seconds: f64) -> Duration {
    if let Ok(Some(limit)) = from_environment() {
        return limit;
    }
    let scaled = to_duration(seconds * BASELINE_FACTOR).unwrap_or(Duration::ZERO);
    scaled.max(DEFAULT_TIMEOUT)
}

fn from_environment() -> Result<Option<Duration>, BadEnvironment> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(|value| parse(&value)).transpose()
}

/// Digits, and perhaps a point and more digits, of which nine count.
fn parse(value: &OsStr) -> Result<Duration, BadEnvironment> {
    let bad = || BadEnvironment(value.to_owned());
    let text = value.to_str().ok_or_else(bad)?.trim();
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || !digits(seconds) || !digits(fraction) {
        return Err(bad());
    }
    let mut nanoseconds = 0;
    for place in 0..9 {
        let digit = fraction.as_bytes().get(place).map_or(0, |digit| digit - b'0');
        nanoseconds = nanoseconds * 10 + u32::from(digit);
    }
    // More seconds than there are numbers for are as good as the most there are.
    let seconds = seconds.parse().unwrap_or(u64::MAX);
    Ok(Duration::new(seconds, nanoseconds))
}

/// None for what is no number of seconds: NaN and negatives. Too many of them are as good as the most there are.
fn to_duration(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocker::Blocker;
    use crate::holder::Holder;

    #[test]
    fn named_negatives_have_a_meaning_and_others_are_refused() {
        assert_eq!(Timeout::from_millis(-1).unwrap(), Timeout::Never);
        assert_eq!(Timeout::from_millis(-2).unwrap(), Timeout::Default);
        assert_eq!(Timeout::from_millis(0).unwrap(), Timeout::After(Duration::ZERO));
        for millis in [-3, i64::MIN] {
            assert!(matches!(
                Timeout::from_millis(millis),
                Err(Error::InvalidArgument(Argument::Timeout(refused))) if refused == millis
            ));
        }
    }

    #[test]
    fn the_largest_timeout_does_not_overflow() {
        let deadline = Deadline::new(Timeout::from_millis(i64::MAX).unwrap());
        assert!(deadline.remaining().unwrap_or(Duration::MAX) > Duration::from_secs(1 << 32));
        assert_eq!(Deadline::new(Timeout::After(Duration::MAX)).at, None);
    }

    #[test]
    fn a_timeout_tells_of_an_environment_that_was_not_understood() {
        let error = Error::Timeout {
            path: "/c.lock".into(),
            waited: DEFAULT_TIMEOUT,
            blocker: Box::new(Blocker::Holder(Holder::silent())),
            note: parse(OsStr::new("soon")).err(),
        };
        let message = error.to_string();
        assert!(message.contains("JITLOCK_TIMEOUT=\"soon\"") && message.contains("600 s"), "{message}");
    }

    #[test]
    fn the_environment_is_seconds_with_a_fraction() {
        for (text, seconds) in [("0", 0.0), ("2", 2.0), ("0.25", 0.25), (" 7 ", 7.0), ("3.", 3.0)] {
            assert_eq!(parse(OsStr::new(text)), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        assert_eq!(parse(OsStr::new("1.0000000019")), Ok(Duration::new(1, 1)));
        assert_eq!(parse(OsStr::new(&"9".repeat(40))).map(|limit| limit.as_secs()), Ok(u64::MAX));
        for text in ["x", "-1", "+1", "nan", "inf", "1e3", "10s", "1,5", ".", ".5", "1.2.3", "1. 5", "٣"] {
            assert!(parse(OsStr::new(text)).is_err(), "{text}");
        }
    }
}
