//! Flash: a latency for each request and a rate; where a request lies doesn't matter.

use super::{Mechanism, Request, transfer};

/// Latencies and rates of reads and writes. The work of its translation layer is in the rate.
pub(crate) struct Flash {
    pub(crate) latency: [u64; 2],
    pub(crate) rate: [u64; 2],
}

impl Mechanism for Flash {
    fn serve(&mut self, start: u64, request: Request) -> (u64, bool) {
        let kind = usize::from(request.write);
        (start + self.latency[kind] + transfer(request.len, self.rate[kind]), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_and_transfer_add_up_wherever_the_request_lies() {
        let mut flash = Flash { latency: [100, 10], rate: [1_000_000_000, 500_000_000] };
        let at = |offset, write| Request { write, offset, len: 4096 };
        assert_eq!(flash.serve(7, at(0, false)), (7 + 100 + 4096, false));
        assert_eq!(flash.serve(7, at(1 << 40, true)), (7 + 10 + 8192, false));
    }
}
