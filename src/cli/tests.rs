//! Command lines of people and of manifests.

use clap::{CommandFactory, Parser};
use holdfast_contract::{DATA_DIR, FAILURES, REQUEST, Request};
use serde_json::Value;

use super::*;

fn parse(words: &[&str]) -> Result<Command, String> {
    Cli::try_parse_from(std::iter::once("holdfast").chain(words.iter().copied()))
        .map(|cli| cli.command)
        .map_err(|e| e.to_string())
}

#[test]
fn the_command_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn a_time_without_an_offset_is_refused_with_its_flag_and_an_example() {
    let line = ["holdfast", "agent", "restore", "--key", "k", "--at-time", "2026-11-28T10:42:07"];
    let refused = Cli::try_parse_from(line).unwrap_err().to_string();
    assert!(refused.contains("--at-time") && refused.contains("2026-11-28T10:42:07Z"), "{refused}");
    assert!(!refused.contains("component"), "{refused}");
}

/// The verbs of the plugin in the table of rights: `snapshot list`, `status`. The story `plugin_with_its_rights` runs each row.
#[test]
fn every_verb_of_the_plugin_has_a_row_of_rights() {
    let page = include_str!("../../docs/plugin.md");
    let (_, rows) = page.split_once("| verb | rights |").unwrap();
    let first = |line: &str| line.split('|').nth(1).map(|cell| cell.trim().trim_matches('`').to_owned());
    let told: std::collections::BTreeSet<String> =
        rows.lines().skip(2).take_while(|line| line.starts_with('|')).filter_map(first).collect();
    let mut verbs = std::collections::BTreeSet::new();
    for verb in Cli::command().get_subcommands() {
        let name = verb.get_name();
        // These need no Kubernetes, or an administrator of the whole cluster.
        if verb.is_hide_set()
            || ["operator", "manifests", "jobs", "agent", "gate", "install", "completion"].contains(&name)
        {
            continue;
        }
        if verb.has_subcommands() {
            verbs.extend(verb.get_subcommands().map(|inner| format!("{name} {}", inner.get_name())));
        } else {
            verbs.insert(name.to_owned());
        }
    }
    assert_eq!(told, verbs);
}

#[test]
fn manifests_are_for_a_cluster_or_a_namespace() {
    let options = |words: &[&str]| {
        let Command::Manifests(flags) = parse(words).unwrap() else { panic!("{words:?}") };
        Options::from(flags)
    };
    let whole = options(&["manifests"]);
    assert_eq!((whole.scope, whole.only, whole.image.as_str()), (Scope::Cluster, None, "holdfast:0.1.0"));
    let one = options(&["manifests", "--image", "r/h:1", "--namespace", "etcd", "--only", "rbac"]);
    assert_eq!(one.scope, Scope::Namespace("etcd".to_owned()));
    assert_eq!((one.only, one.image.as_str()), (Some(Part::Rbac), "r/h:1"));
}

#[test]
fn the_operator_gets_what_its_deployment_says() {
    let words = ["operator", "--agent-image=r/h:1", "--identity=holdfast-abc", "--watch-namespace=etcd"];
    let Command::Operator(flags) = parse(&words).unwrap() else { panic!() };
    let config = Config::try_from(*flags).unwrap();
    assert_eq!((config.agent_image.as_str(), config.identity.as_str()), ("r/h:1", "holdfast-abc"));
    assert_eq!(config.watch_namespace.as_deref(), Some("etcd"));
    assert_eq!((config.lease_namespace.as_str(), config.lease_name.as_str()), ("holdfast-system", "holdfast"));
    assert_eq!((config.listen.port(), config.die_after_writes), (8080, None));
    assert_eq!(config.etcd_repository, "gcr.io/etcd-development/etcd");
    assert_eq!(config.proxies, Proxies::default());
    let mirror = ["operator", "--agent-image=r/h:1", "--identity=a", "--etcd-image-repository=localhost:5000/etcd"];
    let Command::Operator(flags) = parse(&mirror).unwrap() else { panic!() };
    assert_eq!(flags.etcd_image_repository, "localhost:5000/etcd");
    let names = |list: &str| {
        let list = format!("--allowed-names={list}");
        let Command::Operator(flags) = parse(&["operator", "--agent-image=i", "--identity=a", &list]).ok()? else {
            panic!()
        };
        Some(Config::try_from(*flags).unwrap().allowed_names)
    };
    assert_eq!(names("a.example.org,*.b.org,10.0.0.1,*").unwrap(), ["a.example.org", "*.b.org", "10.0.0.1", "*"]);
    assert_eq!(names("").unwrap(), [] as [&str; 0], "an empty variable of the Deployment");
    assert_eq!([names("a b"), names("*b.org"), names("a.*.org")], [None, None, None]);
}

#[test]
fn a_proxy_that_can_be_none_ends_the_operator_and_its_password_is_not_told() {
    for (flag, says) in [
        ("--agent-https-proxy=http://proxy:3128", None),
        ("--agent-http-proxy=proxy:3128", None),
        ("--agent-no-proxy=.svc,10.0.0.0/8", None),
        ("--agent-https-proxy=", None),
        ("--agent-no-proxy=*.svc", Some("--agent-no-proxy (HOLDFAST_AGENT_NO_PROXY): \"*.svc\"")),
        (
            "--agent-https-proxy=socks5://proxy:1080",
            Some("--agent-https-proxy (HOLDFAST_AGENT_HTTPS_PROXY): it names no proxy"),
        ),
        ("--agent-http-proxy=http://169.254.169.254", Some("--agent-http-proxy (HOLDFAST")),
        ("--agent-https-proxy=http://me:hidden@proxy:3128", Some("which every Pod would show")),
    ] {
        let Command::Operator(flags) = parse(&["operator", "--agent-image=i", "--identity=a", flag]).unwrap() else {
            panic!()
        };
        let told = Config::try_from(*flags).err();
        assert!(told.as_ref().is_none_or(|told| !told.contains("hidden")), "{flag}: {told:?}");
        assert_eq!(told.is_some(), says.is_some(), "{flag}: {told:?}");
        assert!(says.is_none_or(|says| told.is_some_and(|told| told.contains(says))), "{flag}");
    }
}

#[test]
fn what_is_wrong_is_told_with_a_remedy() {
    for (words, says) in [
        (&["manifests", "--image", ""][..], "name the image"),
        (&["operator", "--agent-image", "", "--identity", "a"], "name the image"),
        (&["operator", "--agent-image=i", "--identity=a", "--etcd-image-repository="], "that holds etcd's images"),
        (&["operator", "--agent-image=i", "--identity=a", "--etcd-image-repository=r/etcd:v3.6.16"], "without tag"),
        (&["operator", "--agent-image=i", "--identity=a", "--etcd-image-repository=r/etcd/"], "a slash at the end"),
        (&["operator", "--agent-image=i", "--identity=a", "--etcd-image-repository=r/e tcd"], "without tag"),
        (&["operator", "--agent-image", "r/h:1"], "--identity"),
        (&["operator", "--agent-image", "r/h:1", "--identity", ""], "--identity"),
        (&["manifests", "--image", "a b"], "name the image"),
        (&["manifests", "--namespace", "Prod"], "DNS label"),
        (&["manifests", "--namespace=-a"], "DNS label"),
        (&["manifests", "--namespace", ""], "DNS label"),
        (&["manifests", "--only", "pods"], "crds, rbac, deployment, network-policies"),
        (&["manifest"], "manifests"),
        (&["operator", "--identity=me"], "--agent-image"),
        (&["operator", "--identity=me", "--agent-image=i", "--listen=8080"], "--listen"),
        (&["operator", "--identity=me", "--agent-image=i", "--watch-namespace=a/b"], "DNS label"),
        (&["agent", "save"], "--endpoints"),
        (&["agent", "verify"], "FILE"),
        (&["agent", "verify", "--key", "k"], "--store"),
        (&["agent", "verify", "f.db", "--store", "s3://b", "--key", "k"], "cannot be used with"),
        (&["agent", "verify", "f.db", "--level", "drill"], "cannot be used with"),
        (&["agent", "contents"], "FILE"),
        (&["agent", "contents", "f.db", "--value", "k", "--top", "3"], "cannot be used with"),
        (&["agent", "copy", "--store", "s3://a", "--key", "k"], "--to-store"),
        (&["agent", "copy", "--store", "s3://a", "--to-store", "s3://b"], "--key"),
        (&["agent", "copy", "--store", "s3://a", "--to-store", "s3://b", "--all"], "--namespace"),
        (&["agent", "copy", "--store", "s3://a", "--to-store", "s3://b", "--key", "k", "--all"], "cannot be used with"),
        (&["agent", "prune", "--store", "s3://a", "--namespace=n", "--cluster=c"], "--cluster-uid"),
        (&["agent", "remove", "k", "--store", "s3://a"], "--manifest-sha256"),
        (&["agent", "render-restore", "--store", "s3://a"], "--key"),
        (&["agent", "render-restore", "--store", "s3://a", "--key", "k", "--name", "A/b"], "a name has at most 253"),
        (&["gate"], "--volume"),
    ] {
        let error = parse(words).unwrap_err();
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

#[test]
fn every_example_in_a_help_text_is_a_command() {
    let fill = |word: &str| match word {
        "NAMESPACE/CLUSTER/LINEAGE/FOLDER" => "a/b/c/d".to_owned(),
        word => word.to_owned(),
    };
    for examples in [
        SAVE_EXAMPLES,
        VERIFY_EXAMPLES,
        CONTENTS_EXAMPLES,
        COPY_EXAMPLES,
        PRUNE_EXAMPLES,
        PROBE_EXAMPLES,
        RENDER_EXAMPLES,
        UNDELETE_EXAMPLES,
        RESTORE_EXAMPLES,
    ] {
        let joined = examples.replace("\\\n", " ");
        let mut commands = 0;
        for line in joined.lines().filter_map(|line| line.trim().strip_prefix("holdfast ")) {
            let line = line.split(" > ").next().unwrap();
            let words: Vec<String> = line.split_whitespace().map(fill).collect();
            parse(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{line}: {e}"));
            commands += 1;
        }
        assert!(commands > 0, "{examples}");
    }
}

#[test]
fn a_request_is_the_command_that_a_person_would_give() {
    let store = "--store=s3://b";
    let words: [&[&str]; 12] = [
        &["save", store, "--endpoints=a:2379", "--namespace=n", "--cluster=c"],
        &["log", store, "--endpoints=a:2379", "--namespace=n", "--cluster=c", "--spool-dir=/s"],
        &["inspect", store, "--namespace=n", "--cluster=c", "--owner-uid=u"],
        &["latest", store, "--namespace=n", "--cluster=c"],
        &[
            "recall",
            store,
            "--namespace=n",
            "--cluster=c",
            "--schedule-uid=u",
            "--after=2026-01-01T00:00:00Z",
            "--until=2026-01-02T00:00:00Z",
        ],
        &["prune", store, "--namespace=n", "--cluster=c", "--cluster-uid=u", "--schedule-uid=s", "--keep-within=6h"],
        &["remove", "k", store, "--manifest-sha256=h", "--allow-last"],
        &["probe", store],
        &["verify", store, "--latest", "--namespace=n", "--cluster=c", "--level=drill", "--scratch=/s"],
        &["compact", store, "--namespace=n", "--cluster=c"],
        &["compare-members", "--endpoints=a:2379"],
        &[
            "restore",
            store,
            "--key=k",
            "--volume=/v",
            "--cluster-token=t",
            "--member-name=m",
            "--initial-cluster=m=http://m",
        ],
    ];
    let requests = words.map(|words| {
        let command = parse(&[&["agent"], words].concat()).unwrap();
        let request = match command.clone() {
            Command::Agent(Agent::Save(request)) => Request::Save(*request),
            Command::Agent(Agent::Log(verb)) => match *verb {
                LogVerb::Record(request) => Request::Log(*request),
                other @ LogVerb::Status(_) => panic!("{other:?}"),
            },
            Command::Agent(Agent::Inspect(request)) => Request::Inspect(*request),
            Command::Agent(Agent::Latest(request)) => Request::Latest(*request),
            Command::Agent(Agent::Recall(request)) => Request::Recall(*request),
            Command::Agent(Agent::Prune(request)) => Request::Prune(*request),
            Command::Agent(Agent::Remove(request)) => Request::Remove(*request),
            Command::Agent(Agent::Probe(request)) => Request::Probe(*request),
            Command::Agent(Agent::Verify(request)) => Request::Verify(*request),
            Command::Agent(Agent::Compact(request)) => Request::Compact(*request),
            Command::Agent(Agent::CompareMembers(request)) => Request::CompareMembers(*request),
            Command::Agent(Agent::Restore(request)) => Request::Restore(*request),
            other => panic!("{other:?}"),
        };
        (command, request)
    });
    let exec = ["etcd", "--log-level=debug", "--name=x"].map(str::to_owned).to_vec();
    let gate = GateRequest { start: 3, volume: "/v".into(), exec, ..GateRequest::default() };
    let gate = (Command::Gate(Box::new(gate.clone())), Request::Gate(gate));
    for (command, request) in requests.into_iter().chain([gate]) {
        let flags = RunFlags { request: request.to_text(), ..RunFlags::default() };
        assert_eq!(flags.command().unwrap(), command);
    }
    assert!(parse(&["agent", "run"]).unwrap_err().contains("--request"));
    let Ok(Command::Install(flags)) = parse(&["install", "--to=/bin/holdfast"]) else { panic!() };
    assert_eq!(flags.to, Some("/bin/holdfast".into()));
}

#[test]
fn a_request_that_is_empty_or_not_understood_is_a_usage_error() {
    for text in ["", "{", r#"{"save": {"sideways": true}}"#, r#"{"destroy": {}}"#] {
        let error = RunFlags { request: text.to_owned(), ..RunFlags::default() }.command().unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(REQUEST), "{error}");
    }
}

/// All arguments after --exec belong to etcd, also an argument that looks like a Holdfast flag.
#[test]
fn the_arguments_of_etcd_are_not_read_as_the_gate_s() {
    let words = [
        "gate",
        "--volume=/v",
        "--cluster-token=t",
        "--member-name=m",
        "--member-uid=u",
        "--claim-uid=c",
        "--annotations=/a",
        "--exec",
        "etcd",
        "--log-level=debug",
        "--seed",
    ];
    let Ok(Command::Gate(gate)) = parse(&words) else { panic!("{:?}", parse(&words)) };
    assert_eq!((gate.seed, gate.exec), (false, ["etcd", "--log-level=debug", "--seed"].map(str::to_owned).to_vec()));
}

#[test]
fn the_examples_of_save_are_commands() {
    let [readme, by_hand] = [include_str!("../../README.md"), include_str!("../../docs/agent.md")];
    let examples: Vec<_> = [SAVE_EXAMPLES, readme, by_hand]
        .into_iter()
        .flat_map(|text| text.split("holdfast agent save --endpoints").skip(1))
        .map(|rest| rest.replace("\\\n", " ").lines().next().unwrap().to_owned())
        .collect();
    assert_eq!(examples.len(), 6);
    for example in examples {
        let words: Vec<_> = ["agent", "save", "--endpoints"].into_iter().chain(example.split_whitespace()).collect();
        assert!(matches!(parse(&words), Ok(Command::Agent(Agent::Save(_)))), "{words:?}: {:?}", parse(&words));
    }
}

/// The test of all examples contains each verb with examples in its help.
#[test]
fn no_example_is_left_unread() {
    let command = Cli::command();
    let agent = command.find_subcommand("agent").unwrap();
    let told: Vec<_> = agent.get_subcommands().filter(|verb| verb.get_after_help().is_some()).collect();
    let names: Vec<_> = told.iter().map(|verb| verb.get_name()).collect();
    assert_eq!(
        names,
        [
            "save",
            "verify",
            "contents",
            "copy",
            "prune",
            "probe",
            "log",
            "compact",
            "compare-members",
            "defrag",
            "render-restore",
            "restore",
            "survey",
            "undelete"
        ]
    );
    for verb in told {
        let line = format!("holdfast agent {} ", verb.get_name());
        assert!(verb.get_after_help().unwrap().to_string().contains(&line), "{line}");
    }
}

#[test]
fn the_help_of_agent_names_every_exit_code() {
    let command = Cli::command();
    let help = command.find_subcommand("agent").unwrap().get_after_help().unwrap().to_string();
    let told: Vec<u8> = help.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let mut own: Vec<u8> = FAILURES.iter().map(|row| row.code).collect();
    own.sort_unstable();
    assert_eq!(told, [vec![1, 2], own].concat());
}

#[test]
fn the_example_of_restore_is_what_its_etcd_starts_on() {
    let joined = RESTORE_EXAMPLES.replace("\\\n", " ");
    let words = |program: &str| {
        let mut lines = joined.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix(program)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    let Ok(Command::Agent(Agent::Restore(request))) = parse(&words("holdfast ")) else { panic!("{joined}") };
    let member = request.identity.member_name.as_str();
    assert_eq!(request.initial_cluster.split_once('=').unwrap().0, member);
    let data = request.volume.join(DATA_DIR).display().to_string();
    assert_eq!(words("etcd "), ["--name", member, "--data-dir", data.as_str()]);
}

#[test]
fn where_to_save_is_said_with_to_as_well() {
    let save = |store: &[&str]| {
        let words = [&["agent", "save", "--endpoints=a:2379", "--namespace=n", "--cluster=c"], store].concat();
        match parse(&words)? {
            Command::Agent(Agent::Save(request)) => Ok(request),
            other => Err(format!("{other:?}")),
        }
    };
    let request = save(&["--to", "s3://b/etcd"]).unwrap();
    assert_eq!(request, save(&["--store=s3://b/etcd"]).unwrap());
    assert_eq!(request.store.url, "s3://b/etcd");
    let twice = save(&["--store=s3://a", "--to=s3://b"]).unwrap_err();
    assert!(twice.contains("cannot be used multiple times"), "{twice}");
    // For other verbs `--to` would mean the source, or abbreviate another flag.
    for words in [
        &["agent", "list", "--to=s3://b"][..],
        &["agent", "probe", "--to=s3://b"],
        &["agent", "copy", "--store=s3://a", "--to=s3://b", "--key=k"],
    ] {
        let error = parse(words).unwrap_err();
        assert!(error.contains("unexpected argument '--to'"), "{words:?}: {error}");
    }
    let Ok(Command::Agent(Agent::Copy(copy))) =
        parse(&["agent", "copy", "--store=s3://a", "--to-store=s3://b", "--key=k"])
    else {
        panic!("copy has its own")
    };
    assert_eq!((copy.store.url.as_str(), copy.to.0.url.as_str()), ("s3://a", "s3://b"));
}

#[test]
fn a_report_that_is_json_anyway_may_be_asked_for_as_json() {
    let store = "--store=s3://b";
    let verbs: [&[&str]; 2] = [
        &["agent", "inspect", store, "--namespace=n", "--cluster=c", "--owner-uid=u"],
        &["agent", "latest", store, "--namespace=n", "--cluster=c"],
    ];
    for words in verbs {
        let asked = parse(&[words, &["--json"]].concat()).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(asked, parse(words).unwrap(), "the request is the same");
    }
}

/// A person need not invent values that only the operator knows, and a repeated command has the same values.
#[test]
fn a_restore_by_hand_needs_no_uid_and_the_gate_does() {
    let identity = ["--cluster-token=t", "--member-name=m"];
    let by_hand = [
        &["agent", "restore", "--store=s3://b", "--key=k", "--volume=/v", "--initial-cluster=m=http://m"],
        &identity[..],
    ]
    .concat();
    let asked = |words: &[&str]| match parse(words) {
        Ok(Command::Agent(Agent::Restore(request))) => request,
        other => panic!("{words:?}: {other:?}"),
    };
    let request = asked(&by_hand);
    let uids = [&request.identity.member_uid, &request.identity.claim_uid, &request.restore_uid];
    assert_eq!(uids, ["by-hand"; 3]);
    assert!(!request.json && asked(&[&by_hand[..], &["--json"]].concat()).json);
    let named = asked(&[&by_hand[..], &["--member-uid=u", "--claim-uid=c", "--restore-uid=r"]].concat());
    assert_eq!([named.identity.member_uid, named.identity.claim_uid, named.restore_uid], ["u", "c", "r"]);
    let refused = parse(&[&["gate", "--volume=/v", "--annotations=/a"], &identity[..]].concat()).unwrap_err();
    assert!(refused.contains("--member-uid") && refused.contains("--claim-uid"), "{refused}");
}

#[test]
fn a_restore_is_from_a_store_or_from_a_volume() {
    let rest = ["--volume=/v", "--initial-cluster=m=http://m", "--cluster-token=t", "--member-name=m"];
    let restore = |from: &[&str]| match parse(&[&["agent", "restore"], from, &rest[..]].concat())? {
        Command::Agent(Agent::Restore(request)) => Ok(request),
        other => Err(format!("{other:?}")),
    };
    let request = restore(&["--from-volume=/mnt", "--etcd=/bin/etcd"]).unwrap();
    assert_eq!((request.store.url.as_str(), request.key.as_str()), ("", ""));
    assert_eq!((request.from_volume, request.etcd), (Some("/mnt".into()), Some("/bin/etcd".into())));
    assert_eq!(restore(&["--store=s3://b", "--key=k"]).unwrap().from_volume, None);
    for from in [&[][..], &["--store=s3://b"], &["--key=k"]] {
        let missing = restore(from).unwrap_err();
        assert!(missing.contains("required"), "{from:?}: {missing}");
    }
    for more in ["--store=s3://b", "--key=k", "--s3-region=x", "--at-revision=7", "--allow-unverified"] {
        let both = restore(&["--from-volume=/mnt", more]).unwrap_err();
        assert!(both.contains("cannot be used with"), "{more}: {both}");
    }
    let lonely = restore(&["--store=s3://b", "--key=k", "--etcd=/bin/etcd"]).unwrap_err();
    assert!(lonely.contains("cannot be used with"), "{lonely}");
}

#[test]
fn a_dry_run_needs_no_store() {
    let save = ["agent", "save", "--endpoints=a:2379", "--namespace=n", "--cluster=c"];
    assert!(parse(&save).unwrap_err().contains("--store"));
    for (more, url) in
        [(&["--dry-run"][..], ""), (&["--dry-run", "--store=s3://b"], "s3://b"), (&["--store=s3://b"], "s3://b")]
    {
        let Ok(Command::Agent(Agent::Save(request))) = parse(&[&save[..], more].concat()) else { panic!("{more:?}") };
        assert_eq!((request.store.url.as_str(), request.dry_run), (url, more.len() == 2 || url.is_empty()));
    }
}

/// A save for a Kubernetes object always reads with a quorum.
#[test]
fn a_save_without_a_quorum_is_by_hand() {
    let words =
        ["agent", "save", "--endpoints=a:2379", "--store=s3://b", "--namespace=n", "--cluster=c", "--no-quorum"];
    let Ok(Command::Agent(Agent::Save(request))) = parse(&words) else { panic!("{:?}", parse(&words)) };
    assert!(request.no_quorum);
    let refused = parse(&[&words[..], &["--owner-uid=u"]].concat()).unwrap_err();
    assert!(refused.contains("--no-quorum") && refused.contains("--owner-uid"), "{refused}");
}

#[test]
fn the_flags_of_save_stand_in_groups() {
    let command = Cli::command();
    let agent = command.find_subcommand("agent").unwrap();
    let heading = |verb: &str, flag: &str| {
        let verb = agent.find_subcommand(verb).unwrap();
        verb.get_arguments().find(|arg| arg.get_id() == flag).unwrap().get_help_heading().map(str::to_owned)
    };
    for (flag, group) in [
        ("endpoints", Some("etcd")),
        ("password_file", Some("etcd")),
        ("url", Some("Store")),
        ("namespace", Some("Filed under")),
        ("expect_cluster_id", Some("etcd")),
        ("compression", Some("Saving")),
        ("deadline_seconds", Some("Saving")),
    ] {
        assert_eq!(heading("save", flag).as_deref(), group, "{flag}");
    }
    let save = agent.find_subcommand("save").unwrap();
    assert!(save.get_arguments().all(|arg| arg.get_help_heading().is_some()), "clap lets the last heading go on");
    for flag in ["url", "volume", "stall_seconds"] {
        assert_eq!(heading("restore", flag), None, "{flag}");
    }
}

#[test]
fn a_snapshot_is_asked_for_in_one_line() {
    let request = |words: &[&str]| {
        let words = [&["snapshot", "create", "--cluster=a"], words].concat();
        let Command::Snapshot(Snapshot::Create(flags)) = parse(&words)? else { panic!("{words:?}") };
        flags.request().map_err(|e| e.to_string())
    };
    let to_pvc = request(&["--to=pvc://backups/etcd/a/"]).unwrap();
    let folder = PvcLocation { claim_name: "backups".to_owned(), sub_path: Some("etcd/a".to_owned()) };
    assert_eq!(to_pvc.spec.template.destination, Location::Pvc(folder).into());
    assert_eq!((to_pvc.wait, to_pvc.name, to_pvc.access.namespace), (None, None, None));
    let to_store = request(&["--to=store://vault"]).unwrap().spec.template.destination;
    assert_eq!((to_store.store_ref.unwrap().name.as_str(), to_store.place.location()), ("vault", None));
    let to_s3 = request(&["--to=s3://b", "--s3-credentials=keys", "--s3-region=r", "--wait", "-n", "prod"]).unwrap();
    let Some(Location::S3(s3)) = to_s3.spec.template.destination.place.location() else { panic!() };
    assert_eq!((s3.bucket.as_str(), s3.prefix, s3.credentials_secret_ref.unwrap().name.as_str()), ("b", None, "keys"));
    let Some(Location::S3(s3)) = request(&["--to=s3://b"]).unwrap().spec.template.destination.place.location() else {
        panic!()
    };
    assert_eq!(s3.credentials_secret_ref, None, "a role of the Pod's surroundings");
    assert_eq!((to_s3.wait, to_s3.access.namespace.as_deref()), (Some(Duration::from_hours(2)), Some("prod")));
    let key = "age1xmwwc06ly3ee5rytxm9mflaz2u56jjj36s0mypdrwsvlul66mv4q47ryef";
    let encrypted = request(&["--to=pvc://c", &format!("--age-recipient={key}")]).unwrap();
    assert_eq!(encrypted.spec.template.encryption.unwrap().age.recipients, [key]);
    let secret = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";
    let error = request(&["--to=pvc://c", &format!("--age-recipient={secret}")]).unwrap_err();
    assert!(error.contains("private key") && !error.contains("EGTZVFF"), "{error}");
    for (words, says) in [
        (&["--to=store://vault", "--s3-region=r"][..], "leave the --s3-... flags out"),
        (&["--to=store://va/ult"], "store://NAME"),
        (&["--to=pvc://c", "--s3-region=r"], "leave the --s3-... flags out"),
        (&["--to=gs://b"], "in an EtcdBackupStore (spec.azure, spec.gcs), and use store://NAME"),
        (&["--to=azure://c/etcd"], "azure:// is not supported here"),
        (&["--to=ftp://b"], "s3://BUCKET"),
        (&["--to=pvc://"], "pvc://CLAIM"),
        (&["--to=pvc://c", "--name=A"], "--name"),
        (&["--to=pvc://c", "--age-recipient=age1oops"], "--age-recipient \"age1oops\""),
        (&["--to=pvc://c", "--deadline-seconds=5"], "--deadline-seconds"),
        (&["--to=pvc://c", "--timeout-seconds=5"], "--wait"),
    ] {
        let error = request(words).unwrap_err();
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

/// The manifests' flags parse: a flag renamed only here would fail first in a cluster.
#[test]
fn the_deployment_starts_the_operator_it_means() {
    for (scope, namespace, pod_run_as) in
        [(Scope::Cluster, None, RunAs::Fixed), (Scope::Namespace("etcd".to_owned()), Some("etcd"), RunAs::Unset)]
    {
        let options = Options { image: "r/h:1".to_owned(), scope, pod_run_as, only: Some(Part::Deployment) };
        let deployment = holdfast_manifests::objects(&options).unwrap().pop().unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let args: Vec<&str> = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        // The environment sets these two.
        let more = ["--identity=pod", "--agent-image=r/h:1"];
        let Command::Operator(flags) = parse(&[&args[..], &more].concat()).unwrap() else { panic!("{args:?}") };
        let config = Config::try_from(*flags).unwrap();
        assert_eq!(config.watch_namespace.as_deref(), namespace);
        assert_eq!(config.pod_run_as, pod_run_as);
        let security = &deployment["spec"]["template"]["spec"]["securityContext"];
        let named = ["runAsUser", "runAsGroup"].map(|field| security.get(field).is_some());
        assert_eq!((&security["runAsNonRoot"], named), (&Value::Bool(true), [pod_run_as == RunAs::Fixed; 2]));
        assert_eq!(config.lease_namespace, namespace.unwrap_or("holdfast-system"));
        let port = container["ports"][0]["containerPort"].as_u64().unwrap();
        assert_eq!(u64::from(config.listen.port()), port);

        let command = Cli::command();
        let operator = command.find_subcommand("operator").unwrap();
        for variable in container["env"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            assert!(
                operator.get_arguments().any(|a| a.get_env().is_some_and(|e| e == name)),
                "{name} is read by nobody"
            );
        }
    }
}

#[test]
fn a_log_is_recorded_or_shown() {
    let place = ["--store=s3://b", "--namespace=n", "--cluster=c"];
    let logged = parse(&[&["agent", "log", "--endpoints=a:2379,b:2379"][..], &place].concat()).unwrap();
    let Command::Agent(Agent::Log(verb)) = logged else { panic!("{logged:?}") };
    let LogVerb::Record(request) = *verb else { panic!("{verb:?}") };
    assert_eq!(request.etcd.endpoints.len(), 2);
    let shown = parse(&[&["agent", "log", "status", "--json"][..], &place].concat()).unwrap();
    let Command::Agent(Agent::Log(verb)) = shown else { panic!("{shown:?}") };
    assert!(matches!(*verb, LogVerb::Status(status) if status.json));
    for (words, says) in [
        (&["agent", "log"][..], "--endpoints"),
        (&["agent", "log", "--endpoints=a:2379"], "--store"),
        (
            &[
                "agent",
                "log",
                "--endpoints=a:2379",
                "--store=s3://b",
                "--namespace=n",
                "--cluster=c",
                "--every-seconds=0",
            ],
            "--every-seconds",
        ),
        (&["agent", "log", "status"], "--store"),
        (&["agent", "verify", "--log", "--store=s3://b"], "--namespace"),
        (&["agent", "verify", "--namespace=n", "--store=s3://b", "--key=k"], "--latest"),
    ] {
        let error = parse(words).unwrap_err();
        assert!(error.contains(says), "{words:?}: {error}");
    }
    let verify = parse(&[&["agent", "verify", "--log"][..], &place].concat()).unwrap();
    assert!(matches!(verify, Command::Agent(Agent::Verify(request)) if request.log));
}
