//! Faults that a writer could have are found.

use crate::faults;

#[test]
fn every_fault_is_found() {
    let mut count = 0;
    for fault in faults() {
        let found = fault.find(1);
        let found = found.unwrap_or_else(|| panic!("{}: {} is not found", fault.workload(), fault.about));
        println!(
            "{} ({}): {}",
            fault.name,
            fault.about,
            found.to_string().chars().take(200).collect::<String>()
        );
        count += 1;
    }
    assert_eq!(count, 30);
}
