//! The rules of the disk, one by one.

mod properties;

use std::collections::BTreeSet;
use std::path::Path;

use super::{CrashKind, GONE, StoreFault, VirtualStore, VisibleChange};
use crate::snapshot::{LockError, Store, StoreFile};
use crate::testing::faults::INJECTED;

const SEEDS: u64 = 400;

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A store with the durable directory `/d`.
fn store() -> VirtualStore {
    let store = VirtualStore::new(7);
    store.create_directories(path("/d")).unwrap();
    store
}

fn write(store: &VirtualStore, at: &str, bytes: &[u8]) -> Box<dyn StoreFile> {
    let mut file = store.create(path(at)).unwrap();
    file.append(bytes).unwrap();
    file
}

fn write_durable(store: &VirtualStore, at: &str, bytes: &[u8]) {
    write(store, at, bytes).sync().unwrap();
    store.sync_directory(path(at).parent().unwrap()).unwrap();
}

/// What is left after each of many losses of power, as `name=text`.
fn outcomes(store: &VirtualStore) -> BTreeSet<String> {
    let images = (0..SEEDS).map(|seed| store.image(CrashKind::PowerLoss { seed }));
    images.map(|image| show(&image)).collect()
}

fn show(store: &VirtualStore) -> String {
    let files = store.files().into_iter();
    let files = files.map(|(path, bytes)| format!("{path}={}", String::from_utf8_lossy(&bytes)));
    files.collect::<Vec<_>>().join(" ")
}

fn set(outcomes: &[&str]) -> BTreeSet<String> {
    outcomes.iter().map(|outcome| (*outcome).to_owned()).collect()
}

#[test]
fn a_kill_takes_back_nothing_and_ends_the_locks() {
    let store = store();
    write(&store, "/d/a", b"abc");
    let lock = store.lock(path("/d/lock"), "first").unwrap();
    store.crash(CrashKind::Kill);
    let next = store.reboot();
    assert_eq!(show(&next), "/d/a=abc /d/lock=first");
    assert!(next.locks().is_empty());
    let second = next.lock(path("/d/lock"), "second").unwrap();
    drop(lock);
    assert_eq!(next.read(path("/d/lock")).unwrap(), b"second");
    drop(second);
    assert_eq!(show(&next), "/d/a=abc");
}

#[test]
fn what_was_not_durable_before_a_kill_is_not_durable_after_it() {
    let store = store();
    write(&store, "/d/a", b"x").sync().unwrap();
    store.crash(CrashKind::Kill);
    assert_eq!(outcomes(&store.reboot()), set(&["", "/d/a=x"]));
}

#[test]
fn a_durable_file_survives_every_loss_of_power() {
    let store = store();
    write_durable(&store, "/d/a", b"abc");
    assert!(store.unsynced_names().is_empty());
    assert_eq!(outcomes(&store), set(&["/d/a=abc"]));
    assert_eq!(store.promised_files().into_keys().collect::<Vec<_>>(), ["/d/a"]);
}

#[test]
fn a_synced_file_without_a_synced_name_may_vanish() {
    let store = store();
    write(&store, "/d/a", b"abc").sync().unwrap();
    assert_eq!(outcomes(&store), set(&["", "/d/a=abc"]));
    assert!(store.promised_files().is_empty());
}

#[test]
fn a_synced_name_promises_nothing_about_the_bytes() {
    let store = store();
    let mut file = write(&store, "/d/a", b"ab");
    file.sync().unwrap();
    file.append(b"cd").unwrap();
    store.sync_directory(path("/d")).unwrap();
    let left: BTreeSet<Vec<u8>> = (0..10 * SEEDS)
        .map(|seed| store.image(CrashKind::PowerLoss { seed }).read(path("/d/a")).unwrap())
        .collect();
    assert!(left.iter().all(|bytes| bytes.starts_with(b"ab") && bytes.len() <= 4));
    for shape in [&b"ab"[..], b"abc", b"abcd", b"ab\0", b"ab\0\0", b"abc\0", b"ab\0d"] {
        assert!(left.contains(shape), "{shape:?} is among {left:?}");
    }
    let garbage = |bytes: &&Vec<u8>| bytes.len() == 4 && !bytes[2..].contains(&0) && bytes[2..] != *b"cd";
    assert!(left.iter().any(|bytes| garbage(&bytes)));
    let promised = store.promised_files();
    assert_eq!(promised["/d/a"], b"ab");
    store.sync_file(path("/d/a")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/a=abcd"]));
}

#[test]
fn names_of_one_directory_are_kept_or_lost_each_by_itself() {
    let store = store();
    for name in ["/d/a", "/d/b"] {
        write(&store, name, b"x").sync().unwrap();
    }
    assert_eq!(outcomes(&store), set(&["", "/d/a=x", "/d/b=x", "/d/a=x /d/b=x"]));
}

#[test]
fn a_rename_is_atomic() {
    let store = store();
    write_durable(&store, "/d/a", b"x");
    store.rename(path("/d/a"), path("/d/b")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/a=x", "/d/b=x"]));
    store.rename(path("/d/b"), path("/d/c")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/a=x", "/d/b=x", "/d/c=x"]));
    store.sync_directory(path("/d")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/c=x"]));
}

#[test]
fn a_renamed_file_whose_creation_was_lost_is_there_under_the_new_name_or_not_at_all() {
    let store = store();
    write(&store, "/d/a", b"x").sync().unwrap();
    store.rename(path("/d/a"), path("/d/b")).unwrap();
    assert_eq!(outcomes(&store), set(&["", "/d/a=x", "/d/b=x"]));
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    let store = store();
    write_durable(&store, "/d/a", b"old");
    write(&store, "/d/.a", b"new").sync().unwrap();
    store.rename(path("/d/.a"), path("/d/a")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/a=old", "/d/.a=new /d/a=old", "/d/a=new"]));
}

#[test]
fn a_new_file_never_costs_a_durable_one_whose_rename_was_lost() {
    let store = store();
    write_durable(&store, "/d/a", b"first");
    store.rename(path("/d/a"), path("/d/b")).unwrap();
    write(&store, "/d/a", b"second").sync().unwrap();
    let expected = ["/d/a=first", "/d/b=first", "/d/a=second /d/b=first"];
    assert_eq!(outcomes(&store), set(&expected));
}

#[test]
fn a_removed_file_may_come_back_until_its_directory_is_synced() {
    let store = store();
    write_durable(&store, "/d/a", b"x");
    store.remove_file(path("/d/a")).unwrap();
    assert_eq!(outcomes(&store), set(&["", "/d/a=x"]));
    store.sync_directory(path("/d")).unwrap();
    assert_eq!(outcomes(&store), set(&[""]));
}

#[test]
fn a_file_moved_between_directories_is_in_one_or_both_but_never_nowhere() {
    let store = store();
    store.create_directories(path("/e")).unwrap();
    write_durable(&store, "/d/a", b"x");
    store.rename(path("/d/a"), path("/e/b")).unwrap();
    let everything = ["/d/a=x", "/e/b=x", "/d/a=x /e/b=x"];
    assert_eq!(outcomes(&store), set(&everything));
    let twin = store.image(CrashKind::Kill);
    twin.sync_directory(path("/d")).unwrap();
    assert_eq!(outcomes(&twin), set(&["/e/b=x"]), "the old directory promises both");
    store.sync_directory(path("/e")).unwrap();
    assert_eq!(outcomes(&store), set(&["/e/b=x", "/d/a=x /e/b=x"]), "the new one only its own");
    store.sync_directory(path("/d")).unwrap();
    assert_eq!(outcomes(&store), set(&["/e/b=x"]));
}

#[test]
fn removing_a_directory_does_not_cost_what_was_moved_out_of_it() {
    let store = store();
    store.create_directories(path("/e")).unwrap();
    write_durable(&store, "/d/a", b"x");
    store.rename(path("/d/a"), path("/e/a")).unwrap();
    store.remove_directory(path("/d")).unwrap();
    store.sync_directory(path("/")).unwrap();
    assert_eq!(outcomes(&store), set(&["/e/a=x"]));
}

#[test]
fn a_renamed_directory_takes_along_what_is_in_it() {
    let store = store();
    store.create_directories(path("/d/.new")).unwrap();
    write_durable(&store, "/d/.new/a", b"x");
    store.rename(path("/d/.new"), path("/d/new")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/.new/a=x", "/d/new/a=x"]));
}

#[test]
fn only_directories_made_and_promised_are_durable() {
    let dies_in_it = |seed| {
        let store = VirtualStore::new(seed);
        store.crash_at(0, CrashKind::Kill);
        assert!(store.create_directories(path("/a/b/c")).is_err());
        store.reboot()
    };
    let made: BTreeSet<Vec<String>> =
        (0..40).map(|seed| dies_in_it(seed).directories().into_iter().collect()).collect();
    assert_eq!(made.len(), 4, "none, one, two or all three: {made:?}");
    let has_two = |store: &VirtualStore| store.directories() == set(&["/a", "/a/b"]);
    let store = (0..40).map(dies_in_it).find(has_two).unwrap();
    store.create_directories(path("/a/b")).unwrap();
    write_durable(&store, "/a/b/x", b"x");
    assert_eq!(outcomes(&store), set(&["", "/a/b/x=x"]), "it was there already, and promised by nobody");
    store.sync_directory(path("/a")).unwrap();
    store.sync_directory(path("/")).unwrap();
    assert_eq!(outcomes(&store), set(&["/a/b/x=x"]));
}

#[test]
fn new_directories_are_durable_but_not_their_neighbours() {
    let store = store();
    write(&store, "/d/a", b"x").sync().unwrap();
    store.create_directories(path("/d/e")).unwrap();
    assert_eq!(store.unsynced_names(), ["create /d/a"]);
    let directories: BTreeSet<_> =
        (0..SEEDS).map(|seed| store.image(CrashKind::PowerLoss { seed }).directories()).collect();
    assert_eq!(directories, BTreeSet::from([set(&["/d", "/d/e"])]));
}

#[test]
fn bytes_of_a_failed_sync_are_in_doubt_although_a_later_one_succeeds() {
    let store = store();
    let mut file = write(&store, "/d/a", b"safe");
    file.sync().unwrap();
    store.sync_directory(path("/d")).unwrap();
    file.append(b"lost").unwrap();
    store.fail_after(StoreFault::Sync, 0);
    assert!(file.sync().unwrap_err().to_string().contains(INJECTED));
    file.append(b"kept").unwrap();
    file.sync().unwrap();
    assert_eq!(store.read(path("/d/a")).unwrap(), b"safelostkept", "nobody sees it before power is lost");
    let left = outcomes(&store);
    assert!(left.contains("/d/a=safelostkept") && left.contains("/d/a=safe\0\0\0\0kept"), "{left:?}");
    assert!(left.iter().all(|left| left.starts_with("/d/a=safe") && left.ends_with("kept")), "{left:?}");
    // A new process that trusts a sync of its own is wrong as well.
    let next = store.reboot();
    next.sync_file(path("/d/a")).unwrap();
    assert!(outcomes(&next).len() > 1);
}

#[test]
fn a_failed_sync_of_a_directory_is_made_up_for_by_a_later_one() {
    let store = store();
    write(&store, "/d/a", b"x").sync().unwrap();
    store.fail_after(StoreFault::SyncDirectory, 0);
    assert!(store.sync_directory(path("/d")).is_err());
    assert_eq!(outcomes(&store), set(&["", "/d/a=x"]));
    store.sync_directory(path("/d")).unwrap();
    assert_eq!(outcomes(&store), set(&["/d/a=x"]));
}

#[test]
fn a_process_that_dies_in_an_append_has_written_a_prefix() {
    let lengths: BTreeSet<usize> = (0..100)
        .map(|seed| {
            let store = VirtualStore::new(seed);
            let mut file = store.create(path("a")).unwrap();
            store.crash_at(1, CrashKind::Kill);
            file.append(b"ab").unwrap();
            assert_eq!(file.append(b"cdef").unwrap_err().to_string(), GONE);
            let bytes = store.reboot().read(path("a")).unwrap();
            assert!(b"abcdef".starts_with(&bytes));
            bytes.len()
        })
        .collect();
    assert_eq!(lengths, (2..=6).collect());
}

#[test]
fn an_operation_in_which_the_process_dies_has_happened_or_not() {
    let happened: BTreeSet<bool> = (0..20)
        .map(|seed| {
            let store = VirtualStore::new(seed);
            write(&store, "a", b"x");
            store.crash_at(0, CrashKind::Kill);
            assert!(store.rename(path("a"), path("b")).is_err());
            store.reboot().read(path("b")).is_ok()
        })
        .collect();
    assert_eq!(happened.len(), 2);
}

#[test]
fn a_dead_process_changes_nothing_even_after_the_next_has_begun() {
    let store = store();
    let mut file = write(&store, "/d/a", b"x");
    let other = store.clone();
    let lock = store.lock(path("/d/lock"), "first").unwrap();
    store.crash(CrashKind::PowerLoss { seed: 3 });
    assert!(store.is_dead() && other.is_dead());
    let next = store.reboot();
    assert!(store.is_dead() && !next.is_dead());
    write_durable(&next, "/d/b", b"y");
    let held = next.lock(path("/d/lock"), "second").unwrap();
    let (files, operations) = (next.files(), next.operations());
    assert_eq!(file.append(b"z").unwrap_err().to_string(), GONE);
    assert!(file.sync().is_err());
    assert!(other.remove_file(path("/d/b")).is_err() && other.read(path("/d/b")).is_err());
    assert!(matches!(other.lock(path("/d/more"), ""), Err(LockError::Io(_))));
    drop((file, lock));
    assert_eq!((next.files(), next.operations()), (files, operations));
    drop(held);
}

#[test]
fn a_lock_is_held_by_one_and_goes_with_its_file() {
    let store = store();
    let lock = store.lock(path("/d/lock"), "me").unwrap();
    assert!(
        matches!(store.lock(path("/d/lock"), "you"), Err(LockError::Held { owner }) if owner == "me"),
        "the same process does not get it twice"
    );
    assert_eq!(store.locks(), set(&["/d/lock"]));
    drop(lock);
    assert!(store.locks().is_empty() && store.files().is_empty());
    assert!(matches!(store.lock(path("/none/lock"), ""), Err(LockError::Io(_))));
}

#[test]
fn faults_strike_the_call_that_was_named_and_by_rate_within_the_budget() {
    let store = store();
    store.fail_after(StoreFault::Rename, 1);
    for name in ["/d/a", "/d/b"] {
        write(&store, name, b"x");
    }
    store.rename(path("/d/a"), path("/d/c")).unwrap();
    assert!(store.rename(path("/d/b"), path("/d/e")).is_err());
    store.rename(path("/d/b"), path("/d/e")).unwrap();
    for fault in StoreFault::ALL {
        store.set_fault_rate(fault, 1);
    }
    assert_eq!(store.list(path("/d")).unwrap().len(), 2, "no budget yet");
    store.allow_faults(7);
    assert!(store.list(path("/d")).is_err());
    assert!(store.entry(path("/d/c")).is_err());
    assert!(store.remove_file(path("/d/c")).is_err());
    assert!(store.create(path("/d/f")).is_err());
    assert!(store.create_directories(path("/d/f")).is_err());
    assert!(store.sync_directory(path("/d")).is_err());
    assert!(
        matches!(store.lock(path("/d/lock"), ""), Err(LockError::Io(error)) if error.to_string().contains(INJECTED))
    );
    assert_eq!(show(&store), "/d/c=x /d/e=x");
    assert_eq!(store.faults_struck(), 8);
}

#[test]
fn an_append_without_space_writes_a_part() {
    let lengths: BTreeSet<usize> = (0..100)
        .map(|seed| {
            let store = VirtualStore::new(seed);
            let mut file = store.create(path("a")).unwrap();
            store.fail_after(StoreFault::Append, 0);
            assert_eq!(file.append(b"abc").unwrap_err().kind(), std::io::ErrorKind::StorageFull);
            store.read(path("a")).unwrap().len()
        })
        .collect();
    assert_eq!(lengths, (0..=3).collect());
}

#[test]
fn a_full_disk_takes_more_once_there_is_room() {
    let store = store();
    let mut file = write(&store, "/d/a", b"abc");
    store.set_quota(Some(5));
    assert_eq!(file.append(b"def").unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!((store.used(), show(&store).as_str()), (5, "/d/a=abcde"));
    assert!(store.create(path("/d/b")).is_err() && store.create_directories(path("/e")).is_err());
    assert!(store.lock(path("/d/lock"), "").is_err());
    store.rename(path("/d/a"), path("/d/c")).unwrap();
    store.set_quota(Some(6));
    file.append(b"f").unwrap();
    store.remove_file(path("/d/c")).unwrap();
    write(&store, "/d/b", b"123456");
}

#[test]
fn the_history_tells_what_readers_of_finished_files_have_seen() {
    let store = store();
    write(&store, "/d/.part", b"x").sync().unwrap();
    store.create_directories(path("/d/.hidden")).unwrap();
    write(&store, "/d/.hidden/part", b"x");
    assert!(store.visible_history(path("/d")).is_empty());
    store.rename(path("/d/.part"), path("/d/part")).unwrap();
    let seen = store.visible_history(path("/d"));
    assert_eq!((seen.len(), seen[0].path.as_str(), seen[0].violation()), (1, "/d/part", None));
    assert_eq!(seen[0].contents, b"x");
    assert_eq!(store.visible_history(path("/")).len(), 1);
    assert!(store.visible_history(path("/dd")).is_empty());

    let changes = |store: &VirtualStore| {
        let file = store.visible_history(path("/d")).remove(0);
        (file.is_there, file.changes.into_iter().map(|(_, change)| change).collect::<Vec<_>>())
    };
    let lost = (0..).map(|seed| store.image(CrashKind::PowerLoss { seed }));
    let lost = lost.into_iter().find(|image| !image.files().contains_key("/d/part")).unwrap();
    assert_eq!(changes(&lost), (false, vec![VisibleChange::TakenBack]));
    assert!(lost.visible_history(path("/d"))[0].violation().is_none());
    write(&lost, "/d/.again", b"x").sync().unwrap();
    lost.rename(path("/d/.again"), path("/d/part")).unwrap();
    assert_eq!(changes(&lost), (true, vec![VisibleChange::TakenBack]));
    lost.remove_file(path("/d/part")).unwrap();
    write(&lost, "/d/.other", b"y");
    lost.rename(path("/d/.other"), path("/d/part")).unwrap();
    use VisibleChange::{Damaged, Removed, ReturnedDifferent, Rewritten, TakenBack};
    assert_eq!(changes(&lost), (true, vec![TakenBack, Removed, ReturnedDifferent]));

    let moved = store.image(CrashKind::Kill);
    moved.rename(path("/d/part"), path("/d/elsewhere")).unwrap();
    moved.rename(path("/d"), path("/e")).unwrap();
    assert!(moved.visible_history(path("/d")).iter().all(|file| !file.is_there));
    assert!(moved.visible_history(path("/e"))[0].is_there);

    let mut file = write(&store, "/d/.late", b"abc");
    store.rename(path("/d/.late"), path("/d/late")).unwrap();
    store.sync_directory(path("/d")).unwrap();
    let damaged = (0..).map(|seed| store.image(CrashKind::PowerLoss { seed }));
    let damaged = damaged.into_iter().find(|image| image.files()["/d/late"] != b"abc").unwrap();
    assert_eq!(changes(&damaged), (true, vec![Damaged]));
    file.append(b"d").unwrap();
    assert_eq!(changes(&store), (true, vec![Rewritten]));
    assert!(store.visible_history(path("/d"))[0].violation().unwrap().contains("/d/late"));
}

#[test]
fn the_log_tells_the_whole_story() {
    let store = store();
    let mut file = write(&store, "/d/a", b"abc");
    store.crash_at(0, CrashKind::PowerLoss { seed: 1 });
    let _ = file.append(b"def");
    let _ = store.reboot().read(path("/d/none"));
    let log = store.log().join("\n");
    for part in [
        "life 1",
        "   3 append 3 bytes to /d/a",
        "append 3 bytes to /d/a: dies",
        "power lost, seed 1",
        "life 2",
    ] {
        assert!(log.contains(part), "{part:?} is in\n{log}");
    }
    assert!(log.contains("   5 read /d/none: entity not found"), "{log}");
}

#[test]
fn the_same_seed_leaves_the_same_image() {
    let store = store();
    for n in 0..6 {
        write(&store, &format!("/d/{n}"), &[b'x'; 50]);
    }
    for seed in 0..20 {
        let kind = CrashKind::PowerLoss { seed };
        assert_eq!(store.image(kind).log(), store.image(kind).log());
        assert_eq!(store.image(kind).files(), store.image(kind).files());
    }
}
