//! A process that is killed between two file operations, or amid one: at any of them, what the next one finds is enough to go on
//! exactly-once.
//!
//! This binary runs itself as the process that is killed. It wraps the file system, counts operations, and at the one that it was told
//! stops for good and asks to be killed. `STOPLOG_SEED` replays a run, `STOPLOG_LIVES` multiplies the number of lives.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stoplog::base::rng::Rng;
use stoplog::prelude::*;
use stoplog::snapshot::{JobRecord, RunState, StoreFile};

#[path = "kill/counters.rs"]
mod counters;
#[path = "kill/hooked_store.rs"]
mod hooked_store;
#[path = "kill/output.rs"]
mod output;

use counters::{Life, Place, Witness};
use hooked_store::{Hook, HookedStore, Operation};

/// Which operations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// All.
    Anything,
    /// What completes and removes checkpoints.
    Completion,
    /// What publishes output.
    Commit,
    /// Everything from the moment at which the end of the run is written down; in a run that is finished, all.
    Ending,
}

impl Aim {
    const ALL: [Self; 4] = [Self::Anything, Self::Completion, Self::Commit, Self::Ending];

    fn counts(self, operation: Operation, path: &Path, root: &Path) -> bool {
        use Operation as O;
        match self {
            Self::Anything | Self::Ending => true,
            Self::Completion => path.starts_with(counters::checkpoints(root)),
            Self::Commit => {
                path.starts_with(counters::output(root))
                    && matches!(operation, O::Sync | O::SyncDirectory | O::Rename | O::Entry)
            }
        }
    }
}

/// Stops this process at one operation. Whoever comes for another one from then on stops too.
#[derive(Debug)]
struct Killing {
    root: std::path::PathBuf,
    aim: Aim,
    at: u64,
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    operations: u64,
    has_begun: bool,
}

impl Killing {
    fn pass(&self, operation: Operation, path: &Path, on_death: impl FnOnce()) {
        let mut counted = self.counted.lock().unwrap();
        if counted.has_begun && self.aim.counts(operation, path, &self.root) {
            counted.operations += 1;
            if counted.operations == self.at {
                on_death();
                println!("\nKILL {operation:?} {}", path.display());
                io::stdout().flush().unwrap();
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

impl Hook for Killing {
    fn before(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.pass(operation, path, || ());
        Ok(())
    }

    fn append(&self, path: &Path, file: &mut dyn StoreFile, bytes: &[u8]) -> io::Result<()> {
        let is_end = |bytes| JobRecord::decode(bytes).is_ok_and(|record| record.state == RunState::Finished);
        if path.ends_with("._job") && is_end(bytes) {
            self.counted.lock().unwrap().has_begun = true;
        }
        self.pass(Operation::Append, path, || file.append(&bytes[..bytes.len() / 2]).unwrap());
        file.append(bytes)
    }
}

/// A life that takes so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// For the child: where, how it lives and when it dies.
const TASK: &str = "STOPLOG_TEST_CHILD";

/// Not a test: the process that is killed. It returns at once unless this binary has started it.
#[test]
fn child_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut words = task.split('|');
    let mut next = || words.next().unwrap();
    let root = std::path::PathBuf::from(next());
    let aim = Aim::ALL[next().parse::<usize>().unwrap()];
    let at = next().parse().unwrap();
    let life = Life {
        rate: next().parse().unwrap(),
        parallelism: next().parse().unwrap(),
        num_retained: next().parse().unwrap(),
        inline_threshold: next().parse().unwrap(),
        // A failure here is the test's: it is to be seen.
        restart: RestartConfig::None,
        ..Life::default()
    };
    let is_finished = next() == "finished";
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        println!("\nEND hangs");
        std::process::exit(3);
    });
    let has_begun = aim != Aim::Ending || is_finished;
    let counted = Mutex::new(Counted { operations: 0, has_begun });
    let killing = Arc::new(Killing { root: root.clone(), aim, at, counted });
    let store = HookedStore::shared(Arc::clone(&killing) as Arc<dyn Hook>);
    let result = counters::resume(&root, &life, &store).unwrap().wait();
    let error = result.error.map(|error| error.to_string()).unwrap_or_default();
    println!("\nEND {} {} {error}", result.state, result.records_in);
}

/// How a life ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// At this operation.
    Killed(String),
    /// It read so many records.
    Finished { records_in: u64 },
}

fn live(place: &Place, aim: Aim, at: u64, life: &Life) -> End {
    let is_finished = place.record().is_some_and(|record| record.state == RunState::Finished);
    let task = [
        place.root().to_str().unwrap().to_owned(),
        Aim::ALL.iter().position(|known| *known == aim).unwrap().to_string(),
        at.to_string(),
        life.rate.to_string(),
        life.parallelism.to_string(),
        life.num_retained.to_string(),
        life.inline_threshold.to_string(),
        if is_finished { "finished" } else { "" }.to_owned(),
    ];
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_process", "--exact", "--nocapture"])
        .env(TASK, task.join("|"))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut end = None;
    for line in lines {
        let line = line.unwrap();
        if let Some(operation) = line.strip_prefix("KILL ") {
            child.kill().unwrap();
            end = Some(End::Killed(operation.to_owned()));
        } else if let Some(told) = line.strip_prefix("END ") {
            let mut words = told.splitn(3, ' ');
            assert_eq!(words.next(), Some("FINISHED"), "{task:?}: {told}");
            end = Some(End::Finished { records_in: words.next().unwrap().parse().unwrap() });
        }
    }
    let status = child.wait().unwrap();
    let end = end.unwrap_or_else(|| panic!("{task:?}: {status} without a word"));
    assert!(status.success() == matches!(end, End::Finished { .. }), "{status}: {end:?}");
    end
}

/// Lets the job come to its end, whatever has happened to it, and looks whether all is there.
fn live_to_the_end(place: &Place, witness: &mut Witness) {
    let life = Life::default();
    assert!(matches!(live(place, Aim::Anything, 0, &life), End::Finished { .. }));
    witness.look_at(place);
    place.assert_finished(life.records);
    // Once more: there is nothing left to do.
    assert_eq!(live(place, Aim::Anything, 0, &life), End::Finished { records_in: 0 });
    witness.look_at(place);
    place.assert_finished(life.records);
}

struct Draw {
    rng: Rng,
    lives: u32,
}

impl Draw {
    fn new(lives: u32) -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        let seed = number("STOPLOG_SEED").unwrap_or(1);
        println!("STOPLOG_SEED={seed}");
        let times = u32::try_from(number("STOPLOG_LIVES").unwrap_or(1)).unwrap();
        Self { rng: Rng::new(seed), lives: lives * times }
    }

    fn life(&mut self, rate: f64) -> Life {
        Life {
            rate,
            parallelism: 1 + self.rng.below(4) as u32,
            num_retained: 1 + self.rng.below(3) as u32,
            inline_threshold: if self.rng.one_in(2) { 0 } else { 20 << 10 },
            ..Life::default()
        }
    }
}

/// Lives that are each killed where `plan` says, which is given the number of the life in its job: at most `per_job` of each job, until
/// there were enough of them.
fn lives(plan: fn(&mut Rng, u32) -> (Aim, u64), rate: f64, per_job: u32, lives: u32) {
    let mut draw = Draw::new(lives);
    let (mut killed, mut jobs, mut went_on) = (0, 0, 0);
    while killed < draw.lives {
        let place = if jobs % 4 == 3 { Place::new() } else { Place::in_memory() };
        let mut witness = Witness::default();
        jobs += 1;
        for number in 0..per_job {
            let life = draw.life(rate);
            let (aim, at) = plan(&mut draw.rng, number);
            let end = live(&place, aim, at, &life);
            println!("{at} of {aim:?}, {} subtasks: {end:?}", life.parallelism);
            witness.look_at(&place);
            went_on += u32::from(witness.newest.0 > 0);
            killed += u32::from(matches!(end, End::Killed(_)));
            if matches!(end, End::Finished { .. }) || killed >= draw.lives {
                break;
            }
        }
        println!("{} lines before the last life", witness.lines());
        live_to_the_end(&place, &mut witness);
    }
    println!("{killed} lives of {jobs} jobs were killed, {went_on} left a checkpoint");
    assert!(went_on > killed / 2, "most lives leave a checkpoint: {went_on} of {killed}");
}

#[test]
fn killed_while_checkpoints_are_completed() {
    lives(|rng, _| (Aim::Completion, 1 + rng.below(150)), 100_000.0, 100, 200);
}

#[test]
fn killed_while_output_is_published() {
    lives(|rng, _| (Aim::Commit, 1 + rng.below(60)), 100_000.0, 100, 200);
}

#[test]
fn killed_while_a_run_is_begun_or_taken_over() {
    // So short are the lives that without a longer one there would never be a checkpoint to go on from.
    let plan = |rng: &mut Rng, number| match number {
        6 => (Aim::Completion, 100),
        _ => (Aim::Anything, 1 + rng.below(60)),
    };
    lives(plan, 400_000.0, 25, 300);
}

/// In turn at each operation from the one that writes down that the run is finished, then in the life that tidies up after it.
#[test]
fn killed_at_each_operation_of_the_end() {
    let mut draw = Draw::new(1);
    let little = Life { parallelism: 1, ..Life::default() };
    let much = Life { parallelism: 4, num_retained: 3, inline_threshold: 0, ..Life::default() };
    let mut killed = 0;
    for _ in 0..draw.lives {
        for (life, least) in [(&little, 8), (&much, 20)] {
            for at in 1.. {
                let place = Place::in_memory();
                let mut witness = Witness::default();
                let first = live(&place, Aim::Ending, at, life);
                witness.look_at(&place);
                if matches!(first, End::Finished { .. }) {
                    assert!(at > least, "the end has more operations than {at}");
                    break;
                }
                killed += 1;
                let second_at = 1 + draw.rng.below(30);
                let second = live(&place, Aim::Ending, second_at, &draw.life(0.0));
                println!("{at}: {first:?}; then {second_at}: {second:?}");
                killed += u32::from(matches!(second, End::Killed(_)));
                witness.look_at(&place);
                live_to_the_end(&place, &mut witness);
            }
        }
    }
    println!("{killed} lives were killed");
}
