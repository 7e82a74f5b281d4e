// Chats in the browser's storage: one key for the list, one for each chat. Storage that is full or forbidden costs the
// history, not the chat.

const listKey = 'uma.chats', chatKey = (id) => `uma.chat.${id}`, settingsKey = 'uma.settings';
const maxChats = 200;

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

// newChat is an empty conversation; it is not stored before save.
export function newChat() {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join('-'), title: '', at: Date.now(), messages: [] };
}

// list is the stored chats, newest first: {id, title, at}.
export const list = () => read(listKey, []).filter((c) => c && typeof c.id === 'string');

export function load(id) {
  const chat = read(chatKey(id), null);
  return chat && Array.isArray(chat.messages) ? chat : null;
}

// save stores a chat and puts it first; false when the browser has no room. The oldest beyond 200 go.
export function save(chat) {
  if (!chat.messages.length) return true;
  chat.at = Date.now();
  const chats = [{ id: chat.id, title: chat.title, at: chat.at }, ...list().filter((c) => c.id !== chat.id)];
  for (const old of chats.splice(maxChats)) localStorage.removeItem(chatKey(old.id));
  let stored = write(chatKey(chat.id), chat);
  while (!stored && chats.length > 1) { // make room by forgetting the oldest
    localStorage.removeItem(chatKey(chats.pop().id));
    stored = write(chatKey(chat.id), chat);
  }
  return stored && write(listKey, chats);
}

export function remove(id) {
  localStorage.removeItem(chatKey(id));
  write(listKey, list().filter((c) => c.id !== id));
}

export const settings = () => read(settingsKey, {});
export const saveSettings = (s) => write(settingsKey, s);
