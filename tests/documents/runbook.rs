//! Tests of the runbook: a test types each recipe word for word in the situation for which it was written, and checks
//! its result.

mod cluster;
mod entries;
mod losses;
pub mod pages;
mod payments;
mod recipes;
mod results;
mod sales;
mod stores;

use pages::Page;
use recipes::recipes;

/// The files whose tests type recipes.
const SCENES: [&str; 7] = [
    include_str!("runbook/cluster.rs"),
    include_str!("runbook/entries.rs"),
    include_str!("runbook/losses.rs"),
    include_str!("runbook/payments.rs"),
    include_str!("runbook/results.rs"),
    include_str!("runbook/sales.rs"),
    include_str!("runbook/stores.rs"),
];

/// Commands within sentences that change something and name their target. They are recipes, too.
const CHANGES: [&str; 2] = ["redis ", "tidegate pause"];

/// The page that only explains.
const EXPLAINS: &str = "Log messages";

#[test]
fn every_recipe_of_the_runbook_is_typed_in_a_scene() {
    let calls: Vec<(&str, String)> = SCENES.iter().flat_map(|scene| calls_in(scene)).collect();
    let is_typed = |page: &str, text: &str| {
        calls.iter().any(|(of, beginning)| *of == page && text.starts_with(beginning))
    };
    let is_recipe = |language: &str, text: &str| {
        !language.is_empty() || CHANGES.iter().any(|change| text.starts_with(change))
    };
    let idle: Vec<String> = recipes()
        .iter()
        // The first recipe is typed before every other one.
        .skip(1)
        .filter(|recipe| recipe.page != EXPLAINS)
        .filter(|recipe| is_recipe(&recipe.language, &recipe.text) && !is_typed(&recipe.page, &recipe.text))
        .map(|recipe| format!("{}: {}", recipe.page, recipe.text))
        .collect();
    assert!(idle.is_empty(), "no scene types\n{}", idle.join("\n"));
}

/// The page and the beginning of every recipe that a scene types.
fn calls_in(scene: &'static str) -> impl Iterator<Item = (&'static str, String)> {
    scene.split(".types(").skip(1).filter_map(|call| {
        let mut literals = call.split('"').skip(1).step_by(2);
        Some((literals.next()?, literals.next()?.replace("\\n", "\n")))
    })
}

#[test]
fn the_index_fits_on_a_few_screens_and_leads_to_every_page() {
    let index = pages::index();
    assert!(index.text.lines().count() <= 120, "RUNBOOK.md grows: a page is the place for more");
    let pages = pages::pages();
    assert!(pages.len() > 24, "only {} pages are found", pages.len());
    let unnamed: Vec<&str> =
        pages.iter().filter(|page| !leads_to(&index, page)).map(|page| page.path.as_str()).collect();
    assert!(unnamed.is_empty(), "RUNBOOK.md does not name these by their titles: {unnamed:#?}");
    assert!(!leads_to(&index, &Page::new("docs/runbook/none.md", "# None".to_owned())));
}

fn leads_to(index: &Page, page: &Page) -> bool {
    index.text.contains(&format!("[{}]({})", page.title, page.path))
}

#[test]
fn every_page_says_what_is_seen_how_to_confirm_it_what_to_type_when_it_is_over_and_what_not_to_do() {
    let pages = pages::pages().into_iter().filter(|page| page.title != EXPLAINS);
    let wrong: Vec<String> = pages.filter(|page| !page.has_all_parts()).map(|page| page.path).collect();
    assert!(wrong.is_empty(), "these have not all of {:?}, in this order: {wrong:#?}", pages::PARTS);
    assert!(!Page::new("wrong.md", "# Wrong\n\n## What to type\n".to_owned()).has_all_parts());
}
