//! The pages that a newcomer types from the first line to the last: each command works, and each output is seen.

use crate::{
    fixture::{Fixture, Worker},
    markdown::{Document, Part, parts},
    references::{run_line, shell},
    terminal::Terminal,
    tree::Tree,
};

const PAGE: &str = "docs/first-evening.md";
const SELLERS: &str = "docs/sell.md";
/// The address of the gate on the page.
const GATE: &str = "127.0.0.1:8434";

/// The servers, the worker and the gate of a developer who follows the page.
struct Evening {
    fixture: Fixture,
    worker: Option<Worker>,
    gate: Option<Worker>,
    /// The output of all commands since the last block of output.
    output: String,
}

impl Evening {
    /// Runs a block of commands. Refusals end with exit code 1, so only the output counts.
    async fn run_block(&mut self, block: &str) {
        for line in block.lines() {
            if line == "tidegate worker" {
                self.start_worker();
                continue;
            }
            let line = if line.contains(GATE) {
                line.replace(GATE, &self.gate_address().await)
            } else {
                line.to_owned()
            };
            let output = run_line(&self.fixture, &line);
            for text in [output.stdout, output.stderr] {
                self.output += &String::from_utf8(text).expect("text");
            }
        }
    }

    fn start_worker(&mut self) {
        self.worker = Some(self.fixture.worker("w").start());
    }

    async fn stop_worker(&mut self) {
        let worker = self.worker.take().expect("a worker runs");
        assert!(worker.stop().await.success());
    }

    /// Starts the gate, and returns its address.
    async fn gate_address(&mut self) -> String {
        let gate = self.fixture.worker("g").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
        let address = gate.gate_address().await;
        self.gate = Some(gate);
        address.to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_evening_goes_as_its_page_says() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.add_users().await;
    let mut evening = Evening { fixture, worker: None, gate: None, output: String::new() };
    let page = Tree::read_all().read(PAGE);
    let mut outputs = 0;
    for part in parts(PAGE, &page) {
        match part {
            Part::Prose(text) if text.contains("Stop the worker with Ctrl-C") => evening.stop_worker().await,
            Part::Prose(text) if text.contains("Start the worker again") => evening.start_worker(),
            Part::Prose(_) => {}
            Part::Block { language, text } if language == "sh" => evening.run_block(&text).await,
            Part::Block { text, .. } => {
                for line in text.lines() {
                    assert!(evening.output.contains(line), "{line:?} is not in\n{}", evening.output);
                }
                evening.output.clear();
                outputs += 1;
            }
        }
    }
    assert_eq!(outputs, 6, "the page shows six outputs");
    evening.stop_worker().await;
    assert!(evening.gate.expect("the gate runs").stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seller_types_the_page_and_agrees_to_each_question() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.add_users().await;
    let worker = fixture.worker("w").start();
    worker.says("worker started").await;
    let page = Document::parse(SELLERS, &Tree::read_all().read(SELLERS));
    let mut shown = String::new();
    for line in page.shell.iter().flat_map(|block| block.lines()) {
        if line.contains("order event") {
            fixture.settled().await;
        }
        let (code, output) = Terminal::start(&shell(&fixture, line)).says_yes();
        assert_eq!(code, 0, "{line}: {output}");
        shown += &output;
    }
    for promised in ["would be admitted now", "order 693106606090001: admitted", "offered"] {
        assert!(shown.contains(promised) && page.text.contains(promised), "{promised:?}: {shown}");
    }
    let [order] = &fixture.orders().await[..] else { panic!("one order is written") };
    assert_eq!(order.user, 9001);
    assert!(worker.stop().await.success());
}
