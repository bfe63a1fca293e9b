//! Jobs that ask the same, one after the other.
//!
//! Decides which they are, and which of them each is: by what a Job says of its number, where its name is made of the
//! question and that number. When the next one asks is decided elsewhere.

use k8s_openapi::api::batch::v1::Job;

use super::meta;
use crate::api::key;

/// Those of `all` whose Jobs have one of these names, each with its number, in order.
pub fn of<T>(all: Vec<T>, job: impl Fn(&T) -> &Job, name: impl Fn(i32) -> String) -> Vec<(i32, T)> {
    let numbered = all.into_iter().map(|one| (said(job(&one)), one));
    let mut row: Vec<_> = numbered.filter(|(number, one)| meta::name(&job(one).metadata) == name(*number)).collect();
    row.sort_by_key(|(number, _)| *number);
    row
}

/// How many there were before, as a Job says it of itself.
pub fn said(job: &Job) -> i32 {
    let annotations = job.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(key::ATTEMPTS_BEFORE)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, said: Option<&str>) -> Job {
        let mut job = Job::default();
        job.metadata.name = Some(name.to_owned());
        job.metadata.annotations = said.map(|said| [(key::ATTEMPTS_BEFORE.to_owned(), said.to_owned())].into());
        job
    }

    #[test]
    fn a_job_is_known_by_its_number_and_the_name_made_of_it() {
        let row = |all: Vec<Job>| {
            let row = of(all, |job| job, |number| format!("ask-{number}"));
            row.into_iter().map(|(number, job)| (number, job.metadata.name.unwrap())).collect::<Vec<_>>()
        };
        let is = |numbers: &[i32]| numbers.iter().map(|n| (*n, format!("ask-{n}"))).collect::<Vec<_>>();
        assert_eq!(row(vec![]), []);
        assert_eq!(row(vec![named("other", None), named("ask-", Some("1"))]), []);
        let all = vec![named("ask-7", Some("7")), named("other", Some("9")), named("ask-0", None)];
        assert_eq!(row(all), is(&[0, 7]));
        for lost in [None, Some("x"), Some("-3"), Some("2")] {
            let all = vec![named("ask-8", lost), named("ask-7", Some("7")), named("ask-0", None)];
            assert_eq!(row(all), is(&[0, 7]), "{lost:?}");
        }
    }
}
