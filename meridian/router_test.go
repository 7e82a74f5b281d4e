package meridian
