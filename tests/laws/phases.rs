//! Laws: benches time what the driver does.

use crate::support::random;
use cranelift_mergefunc::Merger;
use cranelift_mergefunc::internals::phases;
use testkit::unit::{Held, Unit};

/// If the phases that benches call one by one were not those of the driver, the figures would be of
/// another pass.
#[test]
fn phases_one_by_one_give_the_plan_of_the_driver() {
    random(|u| {
        let unit = Unit::random(u)?;
        let functions = unit.bodies();
        let mut merger = Merger::new(unit.options);
        for member in &unit.functions {
            let added = merger.add(member.symbol(), &member.body, member.attributes);
            added.expect("symbols are distinct");
        }
        let whole = merger.plan(&mut Held::new(&functions));
        let members = unit.functions.iter();
        let members = members.map(|member| (member.symbol(), &member.body, member.attributes));
        let mut names = Vec::new();
        let mut bodies = Held::new(&functions);
        let plan = phases(members, &mut bodies, &unit.options, &mut |name| names.push(name));
        let plan = plan.expect("symbols are distinct");
        assert!(names.starts_with(&["add", "bucket", "refine", "decide"]));
        let entries = |plan: &cranelift_mergefunc::Plan| {
            let entries = plan.entries().map(|(_, entry)| {
                (entry.disposition(), entry.reason(), entry.class(), entry.alignment())
            });
            entries.collect::<Vec<_>>()
        };
        assert_eq!(entries(&plan), entries(&whole));
        Ok(())
    });
}
