//! "Did you mean": the known word nearest to a mistyped one.

/// ` Did you mean X?`, with a space before it, or nothing when no word is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = known.into_iter().map(|candidate| (distance(word, candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if distance <= (word.len() / 3).max(2) => {
            format!("; did you mean {candidate}?")
        }
        _ => String::new(),
    }
}

/// Levenshtein's edit distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, left) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
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

    #[test]
    fn the_distance_counts_insertions_deletions_and_replacements() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
