//! RUNBOOK.md, typed word for word in the situations for which it was written: what it promises is then seen.

mod entries;
mod recipes;
mod sales;
mod stores;

use recipes::recipes;

/// Where recipes are typed.
const SCENES: [&str; 3] =
    [include_str!("runbook/entries.rs"), include_str!("runbook/sales.rs"), include_str!("runbook/stores.rs")];

/// Commands in sentences that change something and name what they change: those are recipes, too.
const CHANGES: [&str; 2] = ["redis ", "tidegate pause"];

#[test]
fn every_recipe_of_the_runbook_is_typed_in_a_scene() {
    let calls: Vec<(&str, String)> = SCENES.iter().flat_map(|scene| calls_in(scene)).collect();
    let is_typed = |heading: &str, text: &str| {
        calls.iter().any(|(of, beginning)| *of == heading && text.starts_with(beginning))
    };
    let is_recipe = |language: &str, text: &str| {
        !language.is_empty() || CHANGES.iter().any(|change| text.starts_with(change))
    };
    let idle: Vec<String> = recipes()
        .iter()
        .skip_while(|recipe| recipe.heading == "Runbook")
        .take_while(|recipe| recipe.heading != "What the log says")
        .filter(|recipe| {
            is_recipe(&recipe.language, &recipe.text) && !is_typed(&recipe.heading, &recipe.text)
        })
        .map(|recipe| format!("{}: {}", recipe.heading, recipe.text))
        .collect();
    assert!(idle.is_empty(), "no scene types\n{}", idle.join("\n"));
}

/// Heading and beginning of every recipe that a scene types.
fn calls_in(scene: &'static str) -> impl Iterator<Item = (&'static str, String)> {
    scene.split(".types(").skip(1).filter_map(|call| {
        let mut literals = call.split('"').skip(1).step_by(2);
        Some((literals.next()?, literals.next()?.replace("\\n", "\n")))
    })
}
