// This page needs no service worker. One that another server has registered for this address, as llama-server's page
// does, would show that page for ever: in its place this one empties its caches, leaves, and loads the pages again.

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (e) => e.waitUntil((async () => {
  for (const name of await caches.keys()) await caches.delete(name);
  await self.registration.unregister();
  for (const page of await self.clients.matchAll({ type: 'window' })) page.navigate(page.url);
})()));
