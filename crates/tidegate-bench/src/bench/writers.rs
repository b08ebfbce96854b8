//! All programs that write orders, in turn: the ceilings, Tidegate, the tutorial's consumer. Then Tidegate in all its
//! shapes.

use anyhow::Result;

use super::{
    Part, Parts, ceiling, drain,
    drain::{Plan, Run},
    existing,
    fixture::{Fixture, Tables},
    results::{Ceiling, Memory, Rate, ServerResults, Tutorial},
    sizes::Sizes,
    tutorial,
    workers::Shape,
};

/// Measures the writers that the targets compare, in rounds, so that disturbances of the machine affect all of them
/// alike.
pub async fn compare(
    fixture: &mut Fixture,
    sizes: &Sizes,
    parts: &Parts,
    results: &mut ServerResults,
) -> Result<()> {
    let own = [Part::Ceiling, Part::Drain, Part::Tutorial, Part::Shapes];
    if !own.into_iter().any(|part| parts.wants(part)) {
        return Ok(());
    }
    let plans = compared(sizes);
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); plans.len()];
    let [mut tutorials, mut ours, mut one, mut sixteen] = [const { Vec::new() }; 4];
    if sizes.existing > 0 && (parts.wants(Part::Drain) || parts.wants(Part::Shapes)) {
        tell("loading the orders of earlier sales");
        existing::load(fixture, sizes.existing).await?;
    }
    ceiling::measure(fixture, Tables::Fresh, sizes.orders / 10).await?;
    for round in 1..=sizes.rounds {
        tell(&format!("round {round} of {}", sizes.rounds));
        if parts.wants(Part::Ceiling) {
            tutorials.push(ceiling::measure(fixture, Tables::Tutorial, sizes.orders).await?);
            ours.push(ceiling::measure(fixture, Tables::Fresh, sizes.orders).await?);
        }
        if parts.wants(Part::Drain) {
            for (plan, runs) in plans.iter().zip(&mut runs) {
                runs.push(drain::measure(fixture, *plan).await?);
            }
        }
        if parts.wants(Part::Tutorial) {
            one.push(tutorial::measure(fixture, 1, sizes.tutorial).await?);
            sixteen.push(tutorial::measure(fixture, 16, sizes.tutorial).await?);
        }
    }
    if parts.wants(Part::Ceiling) {
        results.ceiling = Some(Ceiling { tutorial_tables: Rate::of(tutorials), our_tables: Rate::of(ours) });
    }
    if parts.wants(Part::Tutorial) {
        results.tutorial = Some(Tutorial { workers_1: Rate::of(one), workers_16: Rate::of(sixteen) });
    }
    if parts.wants(Part::Drain) {
        let drains = plans.iter().zip(&runs);
        results.drains.extend(drains.map(|(plan, runs)| drain::conclude(*plan, sizes.existing, runs)));
    }
    Ok(())
}

/// The plans that are compared. The default comes first, because its costs are shown.
fn compared(sizes: &Sizes) -> Vec<Plan> {
    let default = Plan { shape: Shape::DEFAULT, vouchers: 1, tables: Tables::Fresh, orders: sizes.orders };
    let mut plans = vec![default, Plan { vouchers: 10_000, orders: sizes.orders / 2, ..default }];
    if sizes.existing > 0 {
        plans.push(Plan { tables: Tables::Grown, ..default });
    }
    plans
}

/// Measures Tidegate once in every shape that the targets do not compare.
pub async fn all_shapes(fixture: &mut Fixture, sizes: &Sizes, results: &mut ServerResults) -> Result<()> {
    for plan in shapes(sizes) {
        let run = drain::measure(fixture, plan).await?;
        let drain = drain::conclude(plan, sizes.existing, &[run]);
        tell(&format!("{}: {:.0} orders/s", drain.name(), drain.orders_per_s.median));
        results.drains.push(drain);
    }
    Ok(())
}

/// Measures the default with tables of other sizes.
pub async fn growing(fixture: &mut Fixture, sizes: &Sizes, results: &mut ServerResults) -> Result<()> {
    let plan = Plan { tables: Tables::Grown, ..compared(sizes)[0] };
    for existing in sizes.growing.iter().copied() {
        existing::load(fixture, existing).await?;
        let mut runs = Vec::new();
        for _ in 0..sizes.rounds {
            runs.push(drain::measure(fixture, plan).await?);
        }
        let drain = drain::conclude(plan, existing, &runs);
        tell(&format!("{}: {:.0} orders/s", drain.name(), drain.orders_per_s.median));
        results.drains.push(drain);
    }
    Ok(())
}

fn shapes(sizes: &Sizes) -> Vec<Plan> {
    let compared = compared(sizes);
    let default = compared[0];
    let mut plans = Vec::new();
    for lanes in [1, 2, 4] {
        for batch in [1, 10, 100, 500, 1_000] {
            // Small batches are slow, so they get fewer orders.
            let orders = (batch * 3_000).min(sizes.orders / 2).max(batch);
            plans.push(Plan { shape: Shape { lanes, batch, processes: 1 }, orders, ..default });
        }
    }
    for processes in [1, 2] {
        for vouchers in [1, 100, 10_000] {
            for tables in [Tables::Fresh, Tables::Grown] {
                let shape = Shape { processes, ..Shape::DEFAULT };
                plans.push(Plan { shape, vouchers, tables, orders: sizes.orders / 2 });
            }
        }
    }
    let is_same = |a: &Plan, b: &Plan| Plan { orders: 0, ..*a } == Plan { orders: 0, ..*b };
    plans.retain(|plan| !compared.iter().any(|other| is_same(plan, other)));
    plans
}

/// Measures the memory of a worker with a long backlog.
pub async fn memory(fixture: &mut Fixture, sizes: &Sizes) -> Result<Memory> {
    let plan = |orders| Plan { orders, ..compared(sizes)[0] };
    let small = drain::measure(fixture, plan(sizes.backlog / 10)).await?;
    let large = drain::measure(fixture, plan(sizes.backlog)).await?;
    Ok(Memory {
        backlog: sizes.backlog,
        peak_kib: large.worker_peak_kib,
        tenth_peak_kib: small.worker_peak_kib,
        orders_per_s: large.orders_per_s,
    })
}

/// Prints the progress of the run.
pub fn tell(what: &str) {
    println!("  {what}");
}
