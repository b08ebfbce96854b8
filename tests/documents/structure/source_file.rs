//! One Rust file of the product, in numbers.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::{
    Attribute, Block, Fields, Ident, ImplItem, ImplItemFn, ItemEnum, ItemFn, ItemImpl, ItemStruct, ItemTrait,
    ItemType, Lit, Meta, Signature, TraitItemFn, Type, Variant, Visibility,
    visit::{self, Visit},
};

/// A summary of this number of words or fewer cannot be understood without the item's surroundings.
const SHORT_SUMMARY_WORDS: usize = 4;

/// The numbers of a file. Items under `cfg(test)` are in none of them.
#[derive(Debug, Default)]
pub struct SourceFile {
    /// Lines, with comments and blank lines.
    pub lines: usize,
    /// Lines that hold code.
    pub code_lines: usize,
    /// The values of all string literals, including the arguments of macros.
    pub strings: Vec<String>,
    /// Modules under `cfg(test)` that have a file of their own.
    pub test_modules: Vec<String>,
    /// The names of functions with a body, and their lines from `fn` to the closing brace.
    pub functions: Vec<(String, usize)>,
    /// Structs, enums, traits and aliases.
    pub types: Vec<TypeDefinition>,
    /// For each inherent `impl` block, the name of its type and the number of its `pub fn`.
    pub public_methods: Vec<(String, usize)>,
    /// Commands of clap's `Subcommand` enums, without groups of commands.
    pub commands: usize,
    /// The summaries of public items that say too little in the index of rustdoc.
    pub short_summaries: Vec<String>,
}

/// The definition of a type.
#[derive(Debug)]
pub struct TypeDefinition {
    pub name: String,
    /// Whether the type is `pub` or `pub(crate)`.
    pub is_public: bool,
    /// The fields of a struct.
    pub fields: usize,
    /// The fields that are not `pub`.
    pub private_fields: usize,
}

impl SourceFile {
    pub fn parse(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let mut file = Self { lines: lines.len(), ..Self::default() };
        let tokens = file.without_tests(text.parse().expect("Rust"));
        let mut has_tokens = vec![false; lines.len()];
        file.read_tokens(tokens.clone(), &mut has_tokens);
        // A string can hold blank lines.
        let has_code = |(line, has_tokens): &(&str, bool)| *has_tokens && !line.trim().is_empty();
        file.short_summaries = short_summaries(&lines);
        file.code_lines = lines.into_iter().zip(has_tokens).filter(has_code).count();
        file.visit_file(&syn::parse2(tokens).expect("a Rust file"));
        file
    }

    /// Removes doc comments, and items under `cfg(test)`. All other comments are no tokens.
    fn without_tests(&mut self, tokens: TokenStream) -> TokenStream {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut kept, mut at) = (Vec::new(), 0);
        while let Some(token) = tokens.get(at) {
            at += match attribute(&tokens[at..]) {
                Some((length, content)) if is_comment(token, content) => length,
                Some((length, content)) if is_of_tests(content) => {
                    let begin = remove_last_attributes(&mut kept).unwrap_or(token.span());
                    length + self.leave_out(begin, &tokens[at + length..])
                }
                _ => {
                    kept.push(match token {
                        TokenTree::Group(group) => self.group_without_tests(group),
                        other => other.clone(),
                    });
                    1
                }
            };
        }
        kept.into_iter().collect()
    }

    fn group_without_tests(&mut self, group: &Group) -> TokenTree {
        let mut kept = Group::new(group.delimiter(), self.without_tests(group.stream()));
        kept.set_span(group.span());
        kept.into()
    }

    /// Leaves out an item whose attributes start at `begin`. Returns the number of its tokens behind them.
    fn leave_out(&mut self, begin: Span, rest: &[TokenTree]) -> usize {
        let item = item(rest);
        let end = item.last().map_or(begin, TokenTree::span).end();
        self.lines -= end.line - line(begin) + 1;
        if let [.., TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] = item
            && word == "mod"
        {
            self.test_modules.push(name.to_string());
        }
        item.len()
    }

    /// Notes which lines have tokens, and all strings.
    fn read_tokens(&mut self, tokens: TokenStream, has_tokens: &mut [bool]) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    has_tokens[line(group.span_open()) - 1] = true;
                    has_tokens[line(group.span_close()) - 1] = true;
                    self.read_tokens(group.stream(), has_tokens);
                }
                TokenTree::Literal(literal) => {
                    has_tokens[line(literal.span()) - 1..literal.span().end().line].fill(true);
                    if let Lit::Str(text) = Lit::new(literal) {
                        self.strings.push(text.value());
                    }
                }
                other => has_tokens[line(other.span()) - 1] = true,
            }
        }
    }

    fn add_function(&mut self, signature: &Signature, body: &Block) {
        let lines = line(body.brace_token.span.close()) - line(signature.fn_token.span) + 1;
        self.functions.push((signature.ident.to_string(), lines));
    }

    fn add_type(&mut self, name: &Ident, visibility: &Visibility, fields: Option<&Fields>) {
        let is_public = match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(to) => to.path.is_ident("crate"),
            Visibility::Inherited => false,
        };
        let of_struct = || fields.into_iter().flatten();
        self.types.push(TypeDefinition {
            name: name.to_string(),
            is_public,
            fields: of_struct().count(),
            private_fields: of_struct().filter(|field| !is_pub(&field.vis)).count(),
        });
    }
}

impl<'ast> Visit<'ast> for SourceFile {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.add_function(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add_type(&item.ident, &item.vis, Some(&item.fields));
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.add_type(&item.ident, &item.vis, None);
        if item.attrs.iter().any(|it| has_argument(it, "derive", "Subcommand")) {
            let is_group =
                |it: &&Variant| it.attrs.iter().any(|it| has_argument(it, "command", "subcommand"));
            self.commands += item.variants.iter().filter(|variant| !is_group(variant)).count();
        }
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add_type(&item.ident, &item.vis, None);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.add_type(&item.ident, &item.vis, None);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let (None, Type::Path(path)) = (&item.trait_, &*item.self_ty)
            && let Some(name) = path.path.segments.last()
        {
            let is_public = |item: &&ImplItem| matches!(item, ImplItem::Fn(it) if is_pub(&it.vis));
            let methods = item.items.iter().filter(is_public).count();
            self.public_methods.push((name.ident.to_string(), methods));
        }
        visit::visit_item_impl(self, item);
    }
}

/// The summaries of `pub` items with at most four words: the first sentence of each doc comment.
fn short_summaries(lines: &[&str]) -> Vec<String> {
    let mut short = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in lines.iter().map(|line| line.trim()) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line == "#[cfg(test)]" {
            comment.clear();
        } else if !line.starts_with("#[") {
            let paragraph = comment.split(|text| text.is_empty()).next().unwrap_or_default().join(" ");
            let summary = paragraph.split_inclusive(". ").next().unwrap_or_default().trim_end();
            let is_short = (1..=SHORT_SUMMARY_WORDS).contains(&summary.split_whitespace().count());
            short.extend((is_short && line.starts_with("pub")).then(|| summary.to_owned()));
            comment.clear();
        }
    }
    short
}

fn line(span: Span) -> usize {
    span.start().line
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The number of tokens of the attribute that begins here, and the content of its brackets.
fn attribute(tokens: &[TokenTree]) -> Option<(usize, &Group)> {
    let (length, group) = match tokens {
        [hash, TokenTree::Group(group), ..] if is_sign(hash, '#') => (2, group),
        [hash, mark, TokenTree::Group(group), ..] if is_sign(hash, '#') && is_sign(mark, '!') => (3, group),
        _ => return None,
    };
    (group.delimiter() == Delimiter::Bracket).then_some((length, group))
}

/// Removes the attributes that stand before the next item, and returns where they begin.
fn remove_last_attributes(tokens: &mut Vec<TokenTree>) -> Option<Span> {
    let mut begin = None;
    while let [.., hash, content] = &tokens[..]
        && attribute(&[hash.clone(), content.clone()]).is_some()
    {
        begin = Some(hash.span());
        tokens.truncate(tokens.len() - 2);
    }
    begin
}

/// Whether an attribute is a doc comment: then all its tokens stand at the place of the comment.
fn is_comment(hash: &TokenTree, content: &Group) -> bool {
    hash.span().start() == content.span().start()
}

fn is_of_tests(content: &Group) -> bool {
    let text: String = content.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The tokens of the item that begins here: up to a semicolon, or up to braces that no semicolon follows.
fn item(tokens: &[TokenTree]) -> &[TokenTree] {
    let is_braces =
        |token: &TokenTree| matches!(token, TokenTree::Group(it) if it.delimiter() == Delimiter::Brace);
    let is_end = |at: &usize| {
        let is_before_semicolon = tokens.get(at + 1).is_some_and(|next| is_sign(next, ';'));
        is_sign(&tokens[*at], ';') || is_braces(&tokens[*at]) && !is_before_semicolon
    };
    let end = (0..tokens.len()).find(is_end);
    &tokens[..end.map_or(tokens.len(), |at| at + 1)]
}

/// Whether an attribute is `#[name(.., argument, ..)]`.
fn has_argument(attribute: &Attribute, name: &str, argument: &str) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let mut arguments = list.tokens.clone().into_iter();
    list.path.is_ident(name) && arguments.any(|token| matches!(token, TokenTree::Ident(it) if it == argument))
}
