//! Hints about mistyped words, such as the suggestion "did you mean" with the nearest known word.

use strsim::levenshtein;

use super::value_source::FILE_SUFFIX;

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

/// Returns a hint about a name that is no setting, or an empty text. `known` has the names of all settings, spelled like
/// this name.
pub fn for_setting(name: &str, known: &[String]) -> String {
    let without_file = name.strip_suffix(FILE_SUFFIX).or_else(|| name.strip_suffix("_FILE"));
    match without_file.filter(|name| known.iter().any(|known| known == name)) {
        Some(name) => format!("; {name} holds no secret, so write its value, and not the path of a file"),
        None => did_you_mean(name, known.iter().map(String::as_str)),
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
