//! What a worker shows over HTTP: of itself, `/livez`, `/readyz`, `/metrics`, `/status`; of orders, `/orders/{id}` and
//! `/orders/{id}/events`.
//!
//! Nobody who asks may hold up the lanes: connections are few and short, and the stores are asked at most once in a
//! while, however many want to know.

mod connections;
mod http;
mod pages;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;

use sqlx::MySqlPool;
use tidegate_operations::SystemSettings;
use tidegate_orders::RedisStore;
use tidegate_worker::View;
use tokio::{net::TcpListener, time::sleep};

use self::pages::AdminPages;
use crate::{
    order_pages::{OrderStores, OrderWatch},
    server::listen_on,
    settings::AdminSettings,
};

/// How often an address that another process has is tried again.
const TAKEN_RETRY: Duration = Duration::from_secs(2);

impl OrderStores for View {
    fn system(&self) -> &SystemSettings {
        &self.settings().system
    }

    fn connections(&self) -> Option<(RedisStore, MySqlPool)> {
        self.parts().map(|parts| (parts.redis.clone(), parts.mysql.clone()))
    }
}

/// Begins to serve what `views` show, one for each partition and one at least, until the process ends. Nothing is served where it is
/// switched off.
///
/// # Errors
/// When the address cannot be listened on, unless that is because another process has it: then it is taken as soon as
/// it is free, since orders are to be written meanwhile.
pub async fn start(views: &[Arc<View>], settings: &AdminSettings) -> anyhow::Result<()> {
    let Some(address) = settings.listen else { return Ok(()) };
    let listener = match listen_on(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                %address,
                "the admin address is taken by another process: no probes and no metrics until it is free; give \
                 this worker one of its own (admin.listen / TIDEGATE_ADMIN_LISTEN)"
            );
            None
        }
        bound => Some(bound.with_context(|| {
            format!("Failed to listen on {address}; check admin.listen / TIDEGATE_ADMIN_LISTEN")
        })?),
    };
    let stores = views.iter().map(|view| Arc::clone(view) as Arc<dyn OrderStores>).collect();
    let watch = Arc::new(OrderWatch::new(stores));
    let pages = Arc::new(AdminPages::new(views, Arc::clone(&watch), settings.token.clone()));
    tokio::spawn(async move { watch.run().await });
    tokio::spawn(async move {
        let listener = match listener {
            Some(listener) => listener,
            None => bind_when_free(address).await,
        };
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "admin server listens");
        }
        http::serve(listener, pages).await;
    });
    Ok(())
}

async fn bind_when_free(address: SocketAddr) -> TcpListener {
    loop {
        sleep(TAKEN_RETRY).await;
        match listen_on(address) {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(%error, %address, "the admin address is still taken"),
        }
    }
}
