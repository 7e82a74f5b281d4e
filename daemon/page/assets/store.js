// Chats in the browser's storage: one key for the list, one for each chat. Storage that is full or forbidden costs the
// history, not the chat.

import { readChat } from './transfer.js';

const listKey = 'uma.chats', chatKey = (id) => `uma.chat.${id}`, settingsKey = 'uma.settings';
export const maxChats = 200;

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

const newId = () => crypto.getRandomValues(new Uint32Array(2)).join('-');

// newChat is an empty conversation with the settings for new chats; it is not stored before save.
export function newChat() {
  return { id: newId(), title: '', at: Date.now(), messages: [], leaf: -1, settings: settings(), model: '' };
}

// list is the stored chats, newest first: {id, title, at}.
export function list() {
  const stored = read(listKey, []);
  return Array.isArray(stored) ? stored.filter((c) => c && typeof c.id === 'string') : [];
}

// load returns a stored chat, null when there is none or it is damaged.
export function load(id) {
  const stored = read(chatKey(id), null);
  if (!stored) return null;
  try {
    const chat = readChat(stored);
    if (!stored.settings) chat.settings = settings(); // of a version that had one set for all
    return { ...chat, id };
  } catch {
    return null;
  }
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

// put stores a chat that was imported, by its time; false when there is no room. It removes no other chat.
export function put(chat) {
  const chats = list(), id = newId();
  if (chats.length >= maxChats) return false;
  chats.push({ id, title: chat.title, at: chat.at });
  if (write(chatKey(id), { ...chat, id }) && write(listKey, chats.sort((a, b) => b.at - a.at))) return true;
  localStorage.removeItem(chatKey(id));
  return false;
}

export function remove(id) {
  localStorage.removeItem(chatKey(id));
  write(listKey, list().filter((c) => c.id !== id));
}

// settings are those that new chats begin with.
export function settings() {
  const stored = read(settingsKey, {});
  return stored && typeof stored === 'object' ? stored : {};
}
export const saveSettings = (s) => write(settingsKey, s);
