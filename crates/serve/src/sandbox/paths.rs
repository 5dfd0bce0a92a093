//! Files, the network and signals: what Landlock lets this process reach.
//!
//! Excludes what is open already, which no rule of Landlock touches.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};

use super::Plan;

/// The newest version whose rules were tried here.
const KNOWN: ABI = ABI::V7;

/// Restricts this thread, and those that it starts; the version of Landlock, 0 where there is none.
pub(super) fn restrict(plan: &Plan) -> Result<u8, RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut network: BitFlags<AccessNet> = AccessNet::BindTcp.into();
    if !plan.network {
        network |= AccessNet::ConnectTcp;
    }
    let mut ruleset = Ruleset::default()
        .handle_access(all)?
        .handle_access(network)?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    // A path that leads nowhere has no rule, and what opens it says so. Pipes and files in memory need none.
    let rules = path_beneath_rules(&plan.reads, reading)
        .chain(path_beneath_rules(&plan.writes, all & !AccessFs::Execute))
        .chain(path_beneath_rules(&plan.lists, AccessFs::ReadDir))
        .chain(path_beneath_rules(&plan.removes, AccessFs::RemoveFile));
    for rule in rules {
        let _ = (&mut ruleset).add_rule(rule?);
    }
    let status = ruleset.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u8,
        _ => 0,
    })
}
