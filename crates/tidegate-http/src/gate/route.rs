//! The paths of the gate: which page a request means, and which scopes permit it.

use hyper::Method;

use super::tutorial;
use crate::settings::TokenScope;

/// The page or the action that a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// Whether the process of the gate is alive.
    Livez,
    /// Whether the gate admits orders now.
    Readyz,
    /// The OpenAPI document of the gate.
    OpenApi,
    /// The page about the kind of problem with this slug.
    ProblemPage(&'a str),
    /// The metrics of the gate for Prometheus.
    Metrics,
    /// The request for an order.
    PlaceOrder,
    /// The request for an order on the path of the tutorial shop hm-dianping.
    PlaceOrderOfTutorial,
    /// The state of the order with this path below `/orders/`, as a page or as server-sent events.
    Order(&'a str),
    /// The question what an order would get.
    CheckOrder,
    /// The list of a user's orders of a voucher.
    ListOrders,
    /// The voucher that is published, so that its sale begins later.
    PublishVoucher,
    /// The offer of the voucher with this id.
    Voucher(&'a str),
    /// The offers of the campaign with this id.
    Campaign(&'a str),
    /// The results of all orders, as pages or as server-sent events.
    Results,
    /// The report of an event of the order with this id.
    PostEvent(&'a str),
    /// The report of many events, one in each line.
    PostEvents,
}

/// The reason why a request means no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// The path does not exist.
    NoSuchPage,
    /// The path exists, and supports only these methods.
    WrongMethod(&'static str),
}

/// The scopes for pages about orders and vouchers. A client that places orders may also look at them.
const LOOK: &[TokenScope] = &[TokenScope::Order, TokenScope::Read];

impl<'a> Route<'a> {
    /// Finds the page that a method and a path mean. The tutorial's path exists only if `has_tutorial` is set.
    ///
    /// # Errors
    /// Fails if the path does not exist, or does not support the method.
    pub fn of(method: &Method, path: &'a str, has_tutorial: bool) -> Result<Self, NoRoute> {
        let (read, post) = match path {
            "/livez" => (Some(Self::Livez), None),
            "/readyz" => (Some(Self::Readyz), None),
            "/openapi.json" => (Some(Self::OpenApi), None),
            "/metrics" => (Some(Self::Metrics), None),
            "/orders" => (Some(Self::ListOrders), Some(Self::PlaceOrder)),
            "/orders/check" => (None, Some(Self::CheckOrder)),
            "/vouchers" => (None, Some(Self::PublishVoucher)),
            "/results" => (Some(Self::Results), None),
            "/events" => (None, Some(Self::PostEvents)),
            path if has_tutorial && path.starts_with(tutorial::PATH) => {
                (None, Some(Self::PlaceOrderOfTutorial))
            }
            path => Self::below(path)?,
        };
        let meant = match *method {
            Method::GET | Method::HEAD => read,
            Method::POST => post,
            _ => None,
        };
        meant.ok_or(NoRoute::WrongMethod(match (read, post) {
            (Some(_), None) => "GET, HEAD",
            (None, _) => "POST",
            (Some(_), Some(_)) => "GET, HEAD, POST",
        }))
    }

    /// Finds the pages for reading and for sending below a folder.
    fn below(path: &'a str) -> Result<(Option<Self>, Option<Self>), NoRoute> {
        let (folder, rest) =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or(NoRoute::NoSuchPage)?;
        match folder {
            "orders" => Ok((Some(Self::Order(rest)), rest.strip_suffix("/events").map(Self::PostEvent))),
            "vouchers" => Ok((Some(Self::Voucher(rest)), None)),
            "campaigns" => Ok((Some(Self::Campaign(rest)), None)),
            "problems" => Ok((Some(Self::ProblemPage(rest)), None)),
            _ => Err(NoRoute::NoSuchPage),
        }
    }

    /// The scopes of which a token needs one. None: the request needs no token.
    pub const fn scopes(self) -> Option<&'static [TokenScope]> {
        match self {
            Self::PlaceOrder | Self::CheckOrder => Some(&[TokenScope::Order]),
            Self::PostEvent(_) | Self::PostEvents => Some(&[TokenScope::Event]),
            Self::Order(_) | Self::ListOrders | Self::Voucher(_) | Self::Campaign(_) => Some(LOOK),
            Self::Results => Some(&[TokenScope::Results]),
            Self::PublishVoucher => Some(&[TokenScope::Sell]),
            Self::Metrics => Some(&[TokenScope::Read]),
            // The tutorial's login takes the place of a token.
            Self::Livez
            | Self::Readyz
            | Self::OpenApi
            | Self::ProblemPage(_)
            | Self::PlaceOrderOfTutorial => None,
        }
    }

    /// Whether the request asks for an order, so that its answer is counted.
    pub const fn places_order(self) -> bool {
        matches!(self, Self::PlaceOrder | Self::PlaceOrderOfTutorial)
    }

    /// Whether the address of the caller is counted. Probes and documents call no store and need no token that a client
    /// could guess.
    pub const fn is_counted(self) -> bool {
        !matches!(self, Self::Livez | Self::Readyz | Self::OpenApi | Self::ProblemPage(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_methods_and_another_method_is_told_which() {
        let route = |method: Method, path: &'static str| Route::of(&method, path, false);
        assert_eq!(route(Method::HEAD, "/livez"), Ok(Route::Livez));
        assert_eq!(route(Method::POST, "/livez"), Err(NoRoute::WrongMethod("GET, HEAD")));
        assert_eq!(route(Method::POST, "/orders"), Ok(Route::PlaceOrder));
        assert_eq!(route(Method::PATCH, "/orders"), Err(NoRoute::WrongMethod("GET, HEAD, POST")));
        assert_eq!(route(Method::GET, "/orders/check"), Err(NoRoute::WrongMethod("POST")));
        assert_eq!(route(Method::GET, "/vouchers/7"), Ok(Route::Voucher("7")));
        assert_eq!(route(Method::GET, "/vouchers"), Err(NoRoute::WrongMethod("POST")));
        assert_eq!(route(Method::PUT, "/orders/7"), Err(NoRoute::WrongMethod("GET, HEAD")));
        assert_eq!(route(Method::GET, "/orders/7/events"), Ok(Route::Order("7/events")));
        assert_eq!(route(Method::POST, "/orders/7/events"), Ok(Route::PostEvent("7")));
        assert_eq!(route(Method::PUT, "/orders/7/events"), Err(NoRoute::WrongMethod("GET, HEAD, POST")));
        assert_eq!(route(Method::GET, "/"), Err(NoRoute::NoSuchPage));
        let tutorial = "/voucher-order/seckill/7";
        assert_eq!(route(Method::POST, tutorial), Err(NoRoute::NoSuchPage));
        assert_eq!(Route::of(&Method::POST, tutorial, true), Ok(Route::PlaceOrderOfTutorial));
    }

    #[test]
    fn what_needs_no_token_is_not_counted_unless_a_login_is_its_token() {
        for (path, is_free) in [
            ("/livez", true),
            ("/readyz", true),
            ("/openapi.json", true),
            ("/problems/over", true),
            ("/metrics", false),
        ] {
            let route = Route::of(&Method::GET, path, true).unwrap();
            assert_eq!((route.scopes().is_none(), route.is_counted()), (is_free, !is_free), "{path}");
        }
    }
}
