//! Consecutive Jobs with the same request.
//!
//! Decides which Jobs belong to a request, and the number of each: by the Job's name, which is made from the request and the
//! number and which no writer can change. The number in the Job's annotation is a hint. Does not decide when the next Job starts.

use std::collections::BTreeMap;

use holdfast_api::key;
use k8s_openapi::api::batch::v1::Job;

use super::meta;

/// Returns the elements of `all` with one of these Job names, each with its number, in order.
pub fn consecutive_jobs<T>(all: Vec<T>, job: impl Fn(&T) -> &Job, name: impl Fn(i32) -> String) -> Vec<(i32, T)> {
    let numbered = all.into_iter().map(|one| (earlier_jobs(job(&one)), one));
    let (mut consecutive, others): (Vec<_>, Vec<_>) =
        numbered.partition(|(number, one)| meta::name(&job(one).metadata) == name(*number));
    if !others.is_empty() {
        // Each Job was created after an existing Job, so no number is larger.
        let more = i32::try_from(others.len()).unwrap_or(i32::MAX);
        let most = consecutive.iter().map(|(number, _)| *number).max().unwrap_or(0).saturating_add(more);
        let names: BTreeMap<String, i32> = (0..=most).map(|number| (name(number), number)).collect();
        let found = |one: T| Some((*names.get(meta::name(&job(&one).metadata))?, one));
        consecutive.extend(others.into_iter().filter_map(|(_, one)| found(one)));
    }
    consecutive.sort_by_key(|(number, _)| *number);
    consecutive
}

/// Returns the number of earlier Jobs, from the Job's annotation.
pub fn earlier_jobs(job: &Job) -> i32 {
    meta::annotation(&job.metadata, key::ATTEMPTS_BEFORE).and_then(|number| number.parse().ok()).unwrap_or(0)
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
    fn a_job_is_known_by_its_name_whatever_is_left_of_what_it_says() {
        let row = |all: Vec<Job>| {
            let row = consecutive_jobs(all, |job| job, |number| format!("ask-{number}"));
            row.into_iter().map(|(number, job)| (number, job.metadata.name.unwrap())).collect::<Vec<_>>()
        };
        let is = |numbers: &[i32]| numbers.iter().map(|n| (*n, format!("ask-{n}"))).collect::<Vec<_>>();
        assert_eq!(row(vec![]), []);
        assert_eq!(row(vec![named("other", None), named("ask-", Some("1"))]), []);
        let all = vec![named("ask-7", Some("7")), named("other", Some("9")), named("ask-0", None)];
        assert_eq!(row(all), is(&[0, 7]));
        for lost in [None, Some("x"), Some("-3"), Some("2")] {
            let all = vec![named("ask-8", lost), named("ask-7", Some("7")), named("ask-9", lost), named("ask-3", lost)];
            assert_eq!(row(all), is(&[3, 7, 8, 9]), "{lost:?}");
            assert_eq!(row(vec![named("ask-0", lost), named("ask-1", lost)]), is(&[0, 1]), "{lost:?}");
        }
    }
}
