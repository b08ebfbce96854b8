//! The HTTP pages that a worker serves. `/livez`, `/readyz`, `/metrics` and `/status` describe the worker.
//! `/orders/{id}` and `/orders/{id}/events` describe orders.
//!
//! Clients must not hold up the lanes. Therefore the server keeps few connections, each for a short time, and it
//! queries the stores only once in a while, however many clients ask.

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
    tokens::Tokens,
    webhooks::WebhookState,
};

/// The pause before the server tries again to listen on an address that another process has.
const TAKEN_RETRY: Duration = Duration::from_secs(2);

impl OrderStores for View {
    fn system(&self) -> &SystemSettings {
        &self.settings().system
    }

    fn connections(&self) -> Option<(RedisStore, MySqlPool)> {
        self.parts().map(|parts| (parts.redis.clone(), parts.mysql.clone()))
    }
}

/// Starts the admin server, which serves the admin pages until the process ends. `views` contains the state of one
/// worker for each partition, and at least one state. `webhooks` contains the state of each webhook. If the admin server is switched off, this function does
/// nothing.
///
/// # Errors
/// Fails if the server cannot listen on the address. If another process has the address, this is no error: the worker
/// writes orders, and the server starts to listen as soon as the address is free.
pub async fn start(
    views: &[Arc<View>],
    settings: &AdminSettings,
    tokens: &Arc<Tokens>,
    webhooks: Vec<Arc<WebhookState>>,
) -> anyhow::Result<()> {
    let Some(address) = settings.listen else { return Ok(()) };
    let listener = match listen_on(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                %address,
                "another process has the admin address, so this worker answers no probes and shows no metrics: set \
                 another address in admin.listen / TIDEGATE_ADMIN_LISTEN, or end the other process"
            );
            None
        }
        bound => Some(bound.with_context(|| {
            format!("Failed to listen on {address}; check admin.listen / TIDEGATE_ADMIN_LISTEN")
        })?),
    };
    let stores = views.iter().map(|view| Arc::clone(view) as Arc<dyn OrderStores>).collect();
    let watch = Arc::new(OrderWatch::new(stores));
    let pages = Arc::new(AdminPages::new(views, webhooks, Arc::clone(&watch), Arc::clone(tokens)));
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
            Err(error) => tracing::debug!(%error, %address, "another process still has the admin address"),
        }
    }
}
