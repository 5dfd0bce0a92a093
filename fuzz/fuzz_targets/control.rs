//! Messages of the control channel on any bytes: no panic, and what is understood is said again in the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use platfs_serve::control::protocol::{Grant, Reply, Request};

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(request.encode(), data);
    }
    if let Ok(reply) = Reply::decode(data) {
        assert!(Reply::decode(&reply.encode()).is_ok());
    }
    if let Ok(grant) = Grant::decode(data) {
        assert_eq!(Grant::decode(&grant.encode()), Ok(grant));
    }
});
