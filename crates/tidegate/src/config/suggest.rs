//! The suggestion "did you mean": the known word nearest to a mistyped one.

use strsim::levenshtein;

/// Returns `; did you mean X?` for the known word that is nearest, or an empty text if no word is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = known.into_iter().map(|candidate| (levenshtein(word, candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if distance <= (word.len() / 3).max(2) => {
            format!("; did you mean {candidate}?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(
            did_you_mean("worker.bach", ["redis.url", "worker.batch"]),
            "; did you mean worker.batch?"
        );
        assert_eq!(did_you_mean("colour", ["redis.url", "worker.batch"]), "");
    }
}
